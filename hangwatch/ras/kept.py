"""An answer that was kept in a file or a log, without a job at hand: its communicators, and whose numbers they use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from hangwatch.model import NcclCommunicator, every_rank

from . import text
from .reading import LARGEST, MALFORMED, RasError, communicator, document
from .text import Process

_Counts = tuple[tuple[int, str, int], ...]


@dataclass(frozen=True)
class Told:
    """One communicator, with the process of each of its ranks, and what each rank has launched where all is told."""

    found: NcclCommunicator
    processes: Mapping[int, Process] = field(default_factory=dict)
    counts: _Counts = ()

    @property
    def of_all(self) -> bool:
        """Whether it is of all GPUs that the answer tells of: its numbers are the job's then."""
        return bool(self.found.members)


@dataclass(frozen=True)
class Answer:
    """What NCCL's RAS service said at one moment; `at` is None where the answer does not tell it, as text."""

    version: str
    communicators: tuple[Told, ...]
    dead_processes: tuple[str, ...] = ()
    at: datetime | None = None


def answer(said: str) -> Answer:
    """What an answer says. Raises RasError where it is none."""
    try:
        found = _of_json(document(said)) if said.lstrip().startswith("{") else _of_text(said)
    except MALFORMED as error:
        raise RasError(f"the answer is not one of NCCL's RAS service ({type(error).__name__})") from error
    if not found.version:
        raise RasError("the answer is not one of NCCL's RAS service")
    return found


def _of_text(said: str) -> Answer:
    version, sides, dead = text.read(said)
    gpus = text.gpus(said)
    told = tuple(Told(_named(found, gpus), processes) for found, processes in sides)
    return Answer(version, told, tuple(dead))


def _of_json(said: Mapping[str, Any]) -> Answer:
    sides = [(communicator(each), each["ranks"]) for each in said["communicators"]]
    gpus = {
        (str(each.get("host")), each.get("pid"), each.get("cuda_dev"))
        for whole in said["communicators"]
        for each in (*whole["ranks"], *(whole.get("missing_ranks") or ()))
    }
    told = tuple(Told(_named(side.found, len(gpus)), side.processes, _counts(ranks)) for side, ranks in sides)
    return Answer(str(said["nccl_version"]), told, at=_moment(str(said.get("timestamp", ""))))


def _named(found: NcclCommunicator, gpus: int) -> NcclCommunicator:
    return replace(found, members=tuple(every_rank(gpus))) if 0 < found.size == gpus <= LARGEST else found


def _counts(ranks: Collection[Mapping[str, Any]]) -> _Counts:
    return tuple(
        (int(each["rank"]), str(op), int(count))
        for each in ranks
        for op, count in sorted((each.get("collective_counts") or {}).items())
    )


def _moment(said: str) -> datetime | None:
    try:
        return datetime.strptime(said, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
