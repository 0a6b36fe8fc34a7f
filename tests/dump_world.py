"""A world that leaves flight-recorder dumps: hosts that run ahead of streams, one stream per communicator.

Unlike `tests.dumps`, whose devices run one call after another, a call here starts when the calls before it on its
communicator's stream, and those that its compute stream waits for, are complete. So dumps show several calls started
at once, asynchronous calls, coalesced ones, and jobs in the middle of their work. Nothing of hangwatch is used.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

START = 1_763_000_000_000_000_000
FILE = "/home/u/proj/train.py"
TORCH = "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
WORLD = "world"
MAIN_THREAD = "python"
QUEUED, STARTED, COMPLETED = 0, 1, 2
STATES = ("scheduled", "started", "completed")


@dataclass(frozen=True)
class Call:
    """A collective, a send or receive (`peer`, a global rank), or several coalesced ones (`parts`)."""

    name: str
    line: int  # 0 where no line of the program makes it, as in backward
    size: int = 1024
    group: str = WORLD
    dtype: str = "BFloat16"
    out: int | None = None
    peer: int | None = None
    asynchronous: bool = False
    parts: tuple[Call, ...] = ()
    via: int = 300  # line of the function that called the one which makes the call
    thread: str = ""  # the one that makes it, other than the main thread

    @property
    def to_peers(self) -> bool:
        return self.peer is not None or any(part.peer is not None for part in self.parts)


@dataclass(frozen=True)
class Sync:
    """The host waits for its device."""


@dataclass(frozen=True)
class Join:
    """The compute stream waits for all asynchronous calls."""


@dataclass(frozen=True)
class StuckKernel:
    """A kernel of the user's own that never ends."""


@dataclass(frozen=True)
class Stop:
    """The host does not go on: frozen, starved, dead."""


Step = Call | Sync | Join | StuckKernel | Stop


@dataclass
class Entry:
    """A call in a rank's queue; `before` are the calls that its compute stream waits for."""

    call: Call
    number: int
    place: int
    before: list[Entry]
    held: bool
    state: int = QUEUED


@dataclass
class JobDumps:
    """Plays `programs` until nothing moves, or until `meetings` collectives are complete; then tells what is left."""

    programs: dict[int, list[Step]]
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    timed: bool = True
    version: str = "2.10"
    broken: dict[str, int] = field(default_factory=dict)  # group to the number that its network does not complete
    window: int = 2000
    frames: bool = True
    status: bool = True
    config: bool = True
    silent: tuple[int, ...] = ()  # leave no dump
    given_up: bool = False  # torch's watchdog has retired what is not complete
    backend: str = "nccl"
    meetings: int | None = None
    written_after_s: float | None = 600.0  # after the last event; None leaves the time of the file as it is
    threads: bool = False  # the record tells the thread of each call
    made_by: dict[str, tuple[int, ...]] = field(default_factory=dict)  # members that know the group by this name (all)

    def __post_init__(self) -> None:
        self.groups = {WORLD: tuple(sorted(self.programs)), **self.groups}
        self.names = {group: str(place) for place, group in enumerate(self.groups)}
        self.host = dict.fromkeys(self.programs, 0)
        self.queues: dict[int, list[Entry]] = {rank: [] for rank in self.programs}
        self._counts: dict[tuple[int, str, bool], int] = {}
        self._compute: dict[int, list[Entry]] = {rank: [] for rank in self.programs}
        self._stuck: set[int] = set()
        self._play()

    # ------------------------------------------------------------------------------------------ hosts and streams

    def _play(self) -> None:
        left = self.meetings
        while True:
            moved = sum([self._hosts(), self._starts()])
            if left is not None and left <= 0:
                break
            done = self._complete()
            left = None if left is None else left - done
            if not moved and not done:
                break

    def _hosts(self) -> int:
        moved = 0
        for rank in self.programs:
            while self._step(rank):
                moved += 1
        return moved

    def _step(self, rank: int) -> bool:
        place = self.host[rank]
        if place >= len(self.programs[rank]):
            return False
        step, own = self.programs[rank][place], self.queues[rank]
        if isinstance(step, Stop):
            return False
        if isinstance(step, Sync) and (rank in self._stuck or any(each.state < COMPLETED for each in own)):
            return False
        if isinstance(step, Join):
            self._compute[rank] = [each for each in own if each.state < COMPLETED]
        if isinstance(step, StuckKernel):
            self._stuck.add(rank)
        if isinstance(step, Call):
            self._enqueue(rank, step)
        self.host[rank] = place + 1
        return True

    def _enqueue(self, rank: int, call: Call) -> None:
        key = (rank, call.group, call.to_peers)
        self._counts[key] = number = self._counts.get(key, 0) + 1
        own = self.queues[rank]
        own.append(Entry(call, number, len(own), list(self._compute[rank]), rank in self._stuck))
        if not call.asynchronous:
            self._compute[rank] = [own[-1]]

    def _starts(self) -> int:
        ready = [each for rank, own in self.queues.items() for each in own if self._ready(rank, each)]
        for each in ready:
            each.state = STARTED
        return len(ready)

    def _ready(self, rank: int, one: Entry) -> bool:
        if one.state != QUEUED or one.held or any(each.state < COMPLETED for each in one.before):
            return False
        stream = _stream(rank, one.call)
        earlier = self.queues[rank][: one.place]
        return not any(each.state < COMPLETED and _stream(rank, each.call) == stream for each in earlier)

    def _complete(self) -> int:
        done = 0
        for rank, own in self.queues.items():
            for one in own:
                met = self._meeting(rank, one) if one.state == STARTED else None
                for each in met or ():
                    each.state = COMPLETED
                done += met is not None
        return done

    # ------------------------------------------------------------------------------------------ who meets whom

    def _meeting(self, rank: int, one: Entry) -> list[Entry] | None:
        call = one.call
        if one.number >= self.broken.get(call.group, 1 << 60):
            return None
        if call.peer is not None:
            other = self._find(call.peer, lambda each: _serves(each.call, call, rank))
            return None if other is None else [one, other]
        return self._batch(rank, one) if call.to_peers else self._collective(one)

    def _batch(self, rank: int, one: Entry) -> list[Entry] | None:
        found, todo = {rank: one}, [rank]
        while todo:
            here = todo.pop()
            for part in found[here].call.parts:
                peer = part.peer if part.peer is not None else here
                if peer not in found:
                    other = self._find(peer, lambda each: each.call.to_peers and each.call.group == one.call.group)
                    if other is None:
                        return None
                    found[peer] = other
                    todo.append(peer)
                if not any(_serves(each, part, here) for each in found[peer].call.parts):
                    return None
        return list(found.values())

    def _collective(self, one: Entry) -> list[Entry] | None:
        call = one.call
        found = []
        for rank in self.groups[call.group]:
            other = self._find(
                rank, lambda each: not each.call.to_peers and (each.call.group, each.number) == (call.group, one.number)
            )
            if other is None:
                return None
            found.append(other)
        if call.name == "all_to_all":
            given, made = (sum(size(each.call) for each in found) for size in (lambda each: each.size, _made))
            return found if given == made else None
        return found if len({_kind(each.call) for each in found}) == 1 else None

    def _find(self, rank: int, wanted: Callable[[Entry], bool]) -> Entry | None:
        return next((each for each in self.queues.get(rank, ()) if each.state == STARTED and wanted(each)), None)

    # ------------------------------------------------------------------------------------------ dumps

    def document(self, rank: int) -> dict[str, Any]:
        mine = [group for group, members in self.groups.items() if rank in self.made_by.get(group, members)]
        found: dict[str, Any] = {"version": self.version, "entries": list(self._entries(rank))[-self.window :]}
        if self.config:
            found["pg_config"] = {
                self.names[group]: {
                    "name": self.names[group],
                    "desc": _description(group),
                    "ranks": str(list(self.groups[group])),
                }
                for group in mine
            }
        if self.status:
            found["pg_status"] = {self.names[group]: self._status(rank, group) for group in mine}
        return found

    def _status(self, rank: int, group: str) -> dict[str, str]:
        own = [each for each in self.queues[rank] if each.call.group == group and not each.call.to_peers]
        last = [max((each.number for each in own if each.state >= state), default=-1) for state in range(3)]
        if not self.timed:
            last[STARTED] = -1
        words = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
        return {word: str(number) for word, number in zip(words, last, strict=True)}

    def _entries(self, rank: int) -> Iterator[dict[str, Any]]:
        record = 0
        for one in self.queues[rank]:
            parts: Sequence[Call] = one.call.parts or (one.call,)
            if one.call.parts:
                parts = (*parts, replace(one.call, name="coalesced", parts=(), size=0))
            for part in parts:
                yield self._entry(rank, one, part, record, counts=part is parts[-1])
                record += 1

    def _entry(self, rank: int, one: Entry, part: Call, record: int, counts: bool) -> dict[str, Any]:
        state = one.state if counts and self.backend != "gloo" else QUEUED
        state = QUEUED if state == STARTED and not self.timed else state
        p2p, created = one.call.to_peers, START + one.place * 20_000_000 + rank * 37_000
        sizes = [[part.size]] if part.size else []
        frames = [(TORCH, 2810, part.name)]
        if one.call.line:
            frames += [(FILE, one.call.line, "train_step"), (FILE, one.call.via, "<module>")]
        found: dict[str, Any] = {
            "record_id": record,
            "pg_id": int(self.names[part.group]),
            "process_group": (self.names[part.group], _description(part.group)),
            "collective_seq_id": 0 if p2p else one.number,
            "p2p_seq_id": one.number if p2p else 0,
            "op_id": record + 1,
            "profiling_name": f"{self.backend}:{self._said(rank, part)}",
            "time_created_ns": created,
            "input_sizes": sizes,
            "input_dtypes": [part.dtype] * len(sizes),
            "output_sizes": [[_made(part)]] if sizes else [],
            "output_dtypes": [part.dtype] * len(sizes),
            "state": STATES[state],
            "time_discovered_started_ns": created + 90_000 if self.timed and state >= STARTED else None,
            "time_discovered_completed_ns": created + 1_900_000 if state == COMPLETED else None,
            "retired": one.state == COMPLETED or self.given_up,
            "timeout_ms": 600_000,
            "is_p2p": p2p,
        }
        if self.threads:
            found |= {"thread_name": part.thread or MAIN_THREAD, "thread_id": str(1 + len(part.thread))}
        if self.frames:
            found["frames"] = [{"name": name, "filename": file, "line": line} for file, line, name in frames]
        return found

    def _said(self, rank: int, part: Call) -> str:
        if part.peer is None:
            return part.name
        members = self.groups[part.group]
        return f"{part.name} {members.index(rank)}{'->' if part.name == 'send' else '<-'}{members.index(part.peer)}"

    def documents(self) -> dict[int, dict[str, Any]]:
        return {rank: self.document(rank) for rank in self.programs if rank not in self.silent}

    def written_ns(self) -> int:
        """When the files are written; 0 where that is not known."""
        if self.written_after_s is None:
            return 0
        entries = (each for document in self.documents().values() for each in document["entries"])
        last = max((each["time_discovered_completed_ns"] or each["time_created_ns"] for each in entries), default=START)
        return int(last + self.written_after_s * 1e9)

    def write(self, folder: Path, *, as_json: bool = False) -> None:
        """The files that torch would have written, with their times."""
        folder.mkdir(parents=True, exist_ok=True)
        at = self.written_ns()
        for rank, document in self.documents().items():
            path = folder / f"nccl_trace_rank_{rank}"
            path.write_bytes(_json(document) if as_json else pickle.dumps(document, protocol=2))
            if at:
                os.utime(path, ns=(at, at))


def _json(document: dict[str, Any]) -> bytes:
    """As torch writes JSON: without frames, and without `entries` where there are none."""
    entries = [{key: value for key, value in each.items() if key != "frames"} for each in document["entries"]]
    plain = {key: value for key, value in document.items() if key != "entries"}
    return json.dumps({**plain, "entries": entries} if entries else plain).encode()


def _stream(rank: int, call: Call) -> tuple[object, ...]:
    return (call.group,) if call.peer is None else (call.group, min(rank, call.peer), max(rank, call.peer))


def _serves(one: Call, other: Call, rank: int) -> bool:
    same = (one.peer, one.group, one.size) == (rank, other.group, other.size)
    return same and {one.name, other.name} == {"send", "recv"}


def _made(call: Call) -> int:
    return call.size if call.out is None else call.out


def _kind(call: Call) -> object:
    if call.name in ("gather", "scatter"):
        return call.name
    return call.name, call.size, call.out, call.dtype, tuple((part.name, part.size) for part in call.parts)


def _description(group: str) -> str:
    return "default_pg" if group == WORLD else group


def every(world: int, program: Iterable[Step], other: dict[int, list[Step]] | None = None) -> dict[int, list[Step]]:
    """One program for all ranks but those in `other`."""
    common = list(program)
    return {rank: list((other or {}).get(rank, common)) for rank in range(world)}


def mesh(data: int, tensor: int) -> dict[str, tuple[int, ...]]:
    """The groups of a mesh: `tp0`, ... of neighbours, `dp0`, ... across."""
    rows = {f"tp{row}": tuple(range(row * tensor, (row + 1) * tensor)) for row in range(data)}
    return {**rows, **{f"dp{column}": tuple(range(column, data * tensor, tensor)) for column in range(tensor)}}
