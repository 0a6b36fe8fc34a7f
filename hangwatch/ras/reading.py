"""The answer to a status command, in either format, as records."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hangwatch.model import NcclCommunicator, NcclLaunched, NcclView, every_rank

from ..errors import HangwatchError
from . import text
from .text import Process

# ncclResult_t of nccl.h
ERRORS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote process error",
    8: "timeout",
}
IN_PROGRESS = 7
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)
LARGEST = 1 << 20  # ranks of a communicator
_NO_COMMA = re.compile(r'("nvml_dev": -?\d+)(\s+"status")')  # in what NCCL 2.28 says of a missing rank


class RasError(HangwatchError):
    """An answer that is none, or that of another job."""


@dataclass
class Side:
    """One communicator as read, with the process of each of its ranks."""

    found: NcclCommunicator
    processes: dict[int, Process]


def parsed(
    answer: bytes, processes: Mapping[Process, int], groups: Iterable[tuple[int, ...]], world_size: int | None = None
) -> NcclView:
    """What an answer says. Raises RasError where it is none, or tells of none of our processes.

    Args:
        answer: All that came after the status command.
        processes: The job's ranks on this machine by process (pid, and each address that the machine has).
        groups: The members of the job's process groups, in group order, by which ranks of communicators are named.
        world_size: Ranks of the job.
    """
    said = answer.decode("utf-8", "replace")
    try:
        if said.lstrip().startswith("{"):
            version, sides, dead = _of_json(document(said))
        else:
            version, rest, dead = text.read(said)
            sides = [Side(found, pids) for found, pids in rest]
    except MALFORMED as error:
        raise RasError(f"the answer is not one of NCCL's RAS service ({type(error).__name__})") from error
    if not version:
        raise RasError("the answer is not one of NCCL's RAS service")
    ours = [side for side in sides if any(process in processes for process in side.processes.values())]
    if sides and not ours and any(side.processes for side in sides):
        raise RasError("another job on this machine answered")
    known = list(dict.fromkeys([*groups, *([tuple(every_rank(world_size))] if world_size else [])]))
    named = [replace(side.found, members=_members(side, processes, known)) for side in ours or sides]
    of_note = tuple(found for found in named if _of_note(found))
    return NcclView(version, len(named), of_note, tuple(dead))


def _of_note(found: NcclCommunicator) -> bool:
    return bool(found.launched or found.missing or found.errors or found.initialising or found.aborted)


def _members(side: Side, processes: Mapping[Process, int], groups: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The job's ranks in the order of the communicator: those of the one group that fits, else our own."""
    own = {rank: processes[process] for rank, process in side.processes.items() if process in processes}
    size = side.found.size
    if not own or size > LARGEST:
        return ()
    fitting = [
        group for group in groups if len(group) == size and all(group[rank] == ours for rank, ours in own.items())
    ]
    if len(fitting) == 1:
        return fitting[0]
    return tuple(own.get(rank, -1) for rank in range(size))


# ------------------------------------------------------------------------------------------ JSON


def document(said: str) -> Mapping[str, Any]:
    """An answer in JSON, with the comma that NCCL 2.28 leaves out."""
    found: Mapping[str, Any] = json.loads(_NO_COMMA.sub(r"\1,\2", said))
    return found


def _of_json(said: Mapping[str, Any]) -> tuple[str, list[Side], list[str]]:
    return str(said["nccl_version"]), [communicator(each) for each in said["communicators"]], []


def communicator(said: Mapping[str, Any]) -> Side:
    """One of the communicators of an answer in JSON."""
    ranks = list(_ranks(said["ranks"], int(said["size"])))
    absent = list(_ranks(said.get("missing_ranks") or (), int(said["size"])))
    status = {int(each["rank"]): each.get("status") or {} for each in (*ranks, *absent)}
    states = {rank: int(each.get("init_state") or 0) for rank, each in status.items()}
    later = {rank: int(each.get("async_error") or 0) for rank, each in status.items()}
    missing = sorted(int(each["rank"]) for each in absent)
    return Side(
        NcclCommunicator(
            id=str(said.get("hash", "")),
            size=int(said["size"]),
            launched=tuple(_launched(ranks)),
            missing=tuple(missing),
            dead=tuple(rank for rank in missing if status[rank].get("considered_dead") is True),
            errors=dict(sorted(_errors(states, "could not be set up: "))) | dict(sorted(_errors(later, ""))),
            initialising=tuple(sorted(rank for rank, state in states.items() if state == IN_PROGRESS)),
            aborted=tuple(sorted(rank for rank, each in status.items() if each.get("abort_flag") is True)),
        ),
        {int(each["rank"]): (int(each["pid"]), str(each["host"])) for each in ranks + absent if "pid" in each},
    )


def _ranks(said: Iterable[Mapping[str, Any]], size: int) -> Iterator[Mapping[str, Any]]:
    if not 0 < size <= LARGEST:
        raise ValueError("no size of a communicator")
    for each in said:
        if not 0 <= int(each["rank"]) < size:
            raise ValueError("no rank of a communicator")
        yield each


def _errors(codes: Mapping[int, int], before: str) -> Iterator[tuple[int, str]]:
    for rank, code in codes.items():
        if code not in (0, IN_PROGRESS):
            yield rank, before + ERRORS.get(code, f"error {code}")


def _launched(ranks: Collection[Mapping[str, Any]]) -> Iterator[NcclLaunched]:
    """The kinds of operation that the ranks have launched unlike each other, the counts of most ranks first."""
    counts: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for each in ranks:
        for op, count in (each.get("collective_counts") or {}).items():
            counts[str(op)][int(count)].append(int(each["rank"]))
    for op, by_count in counts.items():
        if len(by_count) > 1:
            order = Counter({count: len(who) for count, who in by_count.items()}).most_common()
            yield from (NcclLaunched(op, count, size, tuple(sorted(by_count[count]))) for count, size in order)
