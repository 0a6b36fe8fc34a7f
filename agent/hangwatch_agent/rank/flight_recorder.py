"""torch's flight recorder, read from inside the rank: how far each group is, and the calls with their frames.

What may be asked without harm (read in torch's sources, 2.5 to 2.13, and measured). The functions `_dump_*` hold the
interpreter lock while they run: no other thread of the rank takes a turn during a full dump. A full dump takes the
recorder's mutex, and asks the device for the events of each entry under it; so does the thread that retires NCCL's
entries. A driver that is busy (an allocation that waits for the device, a full launch queue) may keep that thread, and
with it the mutex, for as long as the device stalls: a dump from Python would freeze the whole rank until then.
So the entries of NCCL's recorder are asked for through torch's own request handlers only (see `handlers`), which run
without the interpreter lock: where the mutex is taken, this thread waits and no other. They give no Python frames,
which the board's ring has for calls from Python. A status (`includeCollectives=False`) takes no mutex. gloo's entries
have no events on a device.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hangwatch_agent.rank.group import Group
from hangwatch_agent.rank.torch_handlers import Handlers

C10D = "torch._C._distributed_c10d"
STATUS = {"gloo": "_dump_fr_trace_json", "nccl": "_dump_nccl_trace_json"}
HANDLERS = {"nccl": "dump_nccl_trace_json"}  # backends whose recorder may have to wait for a device
TRACE = {"gloo": "_dump_fr_trace"}


class Recorder:
    """Reads the flight recorders of this process. `missing` says in words what this torch does not have."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is a private one, for the socket of torch's server; without it there are no entries of NCCL's."""
        module = sys.modules.get(C10D)
        handlers = Handlers(module, folder) if folder is not None else None
        self._status = {name: getattr(module, function, None) for name, function in STATUS.items()}
        self._trace = {name: getattr(module, function, None) for name, function in TRACE.items()}
        found = {name: handlers.named(HANDLERS[name]) for name in HANDLERS if handlers is not None}
        self._handlers = {name: ask for name, ask in found.items() if ask is not None}
        self.missing = "" if any(self._status.values()) else "this torch has no flight recorder that can be read"

    def status(self, backends: set[str]) -> dict[str, dict[str, Any]]:
        """For each backend, the status of its groups by their number in it. Costs 3 microseconds each."""
        found = {}
        for name in backends:
            if (read := self._status.get(name)) is not None and not _on_rocm():
                found[name] = json.loads(read(includeCollectives=False)).get("pg_status") or {}
        return found

    def entries(self, backends: set[str], *, frames: bool = True) -> Iterator[dict[str, Any]]:
        """All entries with their Python frames, oldest first for each backend. 2,000 of them take 60 milliseconds.

        Without frames where torch would have to import its compiler for them, which it does to name compiled code: that
        takes seconds, and an import of it that the main thread has under way may fail.
        """
        frames = frames and has_compiler()
        for name in backends:
            if (ask := self._handlers.get(name)) is not None:
                yield from json.loads(ask({})).get("entries") or ()
            elif (read := self._trace.get(name)) is not None:
                # The bytes come from torch in this very process, not from a stranger.
                yield from pickle.loads(read(includeStackTraces=frames)).get("entries") or ()  # noqa: S301


def _on_rocm() -> bool:
    """There a status asks each communicator too, and may wait for it."""
    return bool(getattr(getattr(sys.modules.get("torch"), "version", None), "hip", None))


def has_compiler() -> bool:
    """Whether `torch._inductor` has been imported to its end: only then does torch have it as an attribute."""
    torch = sys.modules.get("torch")
    return torch is not None and "_inductor" in vars(torch)


def recorded(group: Group, recorder: Recorder) -> int | None:
    """The number of the last collective of a group that the recorder has; None where it has none."""
    entries = recorder.entries(set(group.records), frames=False)
    return max((int(each["collective_seq_id"]) for each in entries if _is_of(each, group)), default=None)


def _is_of(entry: dict[str, Any], group: Group) -> bool:
    return not entry.get("is_p2p") and str(entry["process_group"][0]) == group.name


def numbers(groups: Iterable[Group], recorder: Recorder) -> None:
    """Give groups the numbers that the recorders have for them, from the newest entry of each.

    Groups are numbered as they are made in a process. Those that were gone before we came are missing in our count.
    """
    by_name = {group.name: group for group in groups if group.alive}
    for backend in {name for group in by_name.values() for name in group.records}:
        for entry in recorder.entries({backend}, frames=False):
            group = by_name.get(str(entry["process_group"][0]))
            if group is not None and backend in group.records and "pg_id" in entry:
                group.records[backend] = int(entry["pg_id"])


def completed(group: Group, status: dict[str, dict[str, Any]]) -> int | None:
    """How many collectives of a group are completed, from `Recorder.status`; None where the recorder does not know."""
    known = [int(found["last_completed_collective"]) for found in _found(group, status)]
    return group.collectives_until(max(known)) if known and max(known) >= 0 else None


def enqueued(group: Group, status: dict[str, dict[str, Any]]) -> int:
    """How many collectives of a group the recorder has seen, from `Recorder.status`; -1 for none."""
    seen = max((int(found["last_enqueued_collective"]) for found in _found(group, status)), default=-1)
    return group.collectives_until(seen) if seen >= 0 else -1


def of_both_kinds(group: Group, backend: str) -> bool:
    """Whether a status may tell the number of a send or receive: NCCL's has that of the last call of either kind."""
    return backend == "nccl" and bool(group.sent or group.received)


def is_mixed(group: Group) -> bool:
    """Whether the status of one of its backends may be that of a send or receive."""
    return any(of_both_kinds(group, backend) for backend in group.records)


def latest(group: Group, status: dict[str, dict[str, Any]]) -> int:
    """The number of the call that was completed last, of whichever kind: it changes while a device goes on."""
    found = (status.get(backend, {}).get(str(number)) for backend, number in group.records.items())
    return max((int(each["last_completed_collective"]) for each in found if each is not None), default=-1)


def _found(group: Group, status: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for backend, number in group.records.items():
        if of_both_kinds(group, backend):
            continue
        found = status.get(backend, {}).get(str(number))
        if found is not None:
            yield found
