"""Jobs that leave dumps in the format of torch's flight recorder: each rank's program is played, and says what it left.

A rank's host enqueues its whole program, or less where it is stopped; its device runs one call at a time, in order. A
collective completes where all members have enqueued fitting calls under one number and every device has come to it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
FILE = "/home/mia/train.py"
START = 1_760_000_000_000_000_000
WORLD = "0"
ENDS_NS = 1_000_000  # behind its start, which is told on its own: by no look at both, as of a dump
DTYPES = {"f32": "Float", "f16": "Half", "i64": "Long"}


@dataclass(frozen=True)
class Op:
    """One call of a program: what, where in the user's file, in which group."""

    name: str
    line: int
    size: int = 64
    group: str = WORLD
    dtype: str = "f32"
    peer: int | None = None  # global rank, of a send or receive


def loop(turns: int, *body: Op) -> list[Op]:
    """The program of a training loop."""
    return list(body) * turns


@dataclass
class Job:
    """A job of `world` ranks; `programs` may differ by rank."""

    world: int
    programs: dict[int, list[Op]]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    timed: bool = False
    backend: str = "nccl"
    version: str = "2.10"
    stuck_devices: dict[int, int] = field(default_factory=dict)  # rank to the place from which its device runs nothing
    cut: dict[str, int] = field(default_factory=dict)  # group to the number that its network does not complete
    window: int = 2000
    expired: bool = False
    silent: tuple[int, ...] = ()  # leave no dump

    def __post_init__(self) -> None:
        self.groups = {WORLD: tuple(range(self.world)), **self.groups}
        self._play()

    # ------------------------------------------------------------------------------------------ the devices

    def _play(self) -> None:
        self.numbers = {rank: list(_numbered(program)) for rank, program in self.programs.items()}
        self.done = dict.fromkeys(self.programs, 0)
        while sum(self._step(rank) for rank in self.programs):
            pass

    def _step(self, rank: int) -> bool:
        place = self.done[rank]
        if place >= len(self.programs[rank]) or not self._runs(rank):
            return False
        partners = self._partners(rank)
        if partners is None:
            return False
        for other in partners:
            self.done[other] += 1
        return True

    def _runs(self, rank: int) -> bool:
        return self.done[rank] < self.stuck_devices.get(rank, 1 << 60)

    def _partners(self, rank: int) -> Iterable[int] | None:
        """The ranks whose devices are all at the call that the device of `rank` is at; None where some are not."""
        place = self.done[rank]
        op, number = self.programs[rank][place], self.numbers[rank][place]
        if number >= self.cut.get(op.group, 1 << 60):
            return None
        wanted = self.groups[op.group] if op.peer is None else (rank, op.peer)
        for other in wanted:
            if other == rank:
                continue
            at = self.done.get(other, 1 << 60)
            if at >= len(self.programs.get(other, ())) or not self._runs(other):
                return None
            theirs = self.programs[other][at]
            if not _meet(rank, op, number, theirs, self.numbers[other][at]):
                return None
        return wanted

    # ------------------------------------------------------------------------------------------ the dumps

    def document(self, rank: int) -> dict[str, Any]:
        entries = [self._entry(rank, place) for place in range(len(self.programs[rank]))]
        config = {
            name: {"name": name, "desc": "default_pg" if name == WORLD else f"{name}_group", "ranks": str(list(ranks))}
            for name, ranks in self.groups.items()
            if rank in ranks
        }
        return {"version": self.version, "pg_config": config, "pg_status": {}, "entries": entries[-self.window :]}

    def _entry(self, rank: int, place: int) -> dict[str, Any]:
        op, number = self.programs[rank][place], self.numbers[rank][place]
        done, p2p = place < self.done[rank], op.peer is not None
        begun = self.timed and (done or (place == self.done[rank] and self._runs(rank)))
        members = self.groups[op.group]
        name = op.name
        if op.peer is not None:
            arrow = "->" if op.name == "send" else "<-"
            name = f"{op.name} {members.index(rank)}{arrow}{members.index(op.peer)}"
        given, made = _sizes(op, len(members))
        created = START + place * 10_000_000 + rank * 1000
        state = "completed" if done else "started" if begun else "scheduled"
        if self.backend == "gloo":
            state = "scheduled"
        return {
            "frames": [_frame(TORCH, 2800, op.name), _frame(FILE, op.line, "step"), _frame(FILE, 9, "<module>")],
            "record_id": place,
            "pg_id": list(self.groups).index(op.group),
            "process_group": (op.group, "default_pg" if op.group == WORLD else f"{op.group}_group"),
            "collective_seq_id": 0 if p2p else number,
            "p2p_seq_id": number if p2p else 0,
            "op_id": place + 1,
            "profiling_name": f"{self.backend}:{name}",
            "time_created_ns": created,
            "input_sizes": [[given]],
            "input_dtypes": [DTYPES[op.dtype]],
            "output_sizes": [[made]],
            "output_dtypes": [DTYPES[op.dtype]],
            "state": state,
            "time_discovered_started_ns": created + 1000 if begun else None,
            "time_discovered_completed_ns": created + ENDS_NS if done else None,
            "retired": done or self.expired,
            "timeout_ms": 600_000,
            "is_p2p": p2p,
        }

    def documents(self) -> dict[int, dict[str, Any]]:
        return {rank: self.document(rank) for rank in self.programs if rank not in self.silent}

    def write(self, folder: Path, *, as_json: bool = False) -> list[Path]:
        """The files that torch would have written."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for rank, document in self.documents().items():
            path = folder / f"nccl_trace_rank_{rank}"
            path.write_bytes(as_json_text(document) if as_json else pickle.dumps(document, protocol=2))
            written.append(path)
        return written


def as_json_text(document: dict[str, Any]) -> bytes:
    """As torch writes JSON: without frames, counts as text, no `entries` where there are none."""
    plain = {key: value for key, value in document.items() if key != "entries"}
    entries = [{key: value for key, value in entry.items() if key != "frames"} for entry in document["entries"]]
    if entries:
        plain["entries"] = entries
    return json.dumps(plain).encode()


def alike(world: int, program: Sequence[Op], **changed: Sequence[Op]) -> dict[int, list[Op]]:
    """One program for all ranks; `rank3=...` is another one for rank 3."""
    other = {int(name.removeprefix("rank")): list(own) for name, own in changed.items()}
    return {rank: other.get(rank, list(program)) for rank in range(world)}


_FRAMES: dict[tuple[str, int, str], dict[str, Any]] = {}


def _frame(file: str, line: int, name: str) -> dict[str, Any]:
    return _FRAMES.setdefault((file, line, name), {"name": name, "filename": file, "line": line})


def _numbered(program: Sequence[Op]) -> Iterable[int]:
    counts: dict[tuple[str, bool], int] = {}
    for op in program:
        key = (op.group, op.peer is not None)
        counts[key] = counts.get(key, 0) + 1
        yield counts[key]


def _sizes(op: Op, members: int) -> tuple[int, int]:
    if "all_gather" in op.name:
        return op.size, op.size * members
    return (op.size * members, op.size) if "reduce_scatter" in op.name else (op.size, op.size)


def _meet(rank: int, op: Op, number: int, other: Op, theirs: int) -> bool:
    if op.peer is not None:
        return other.peer == rank and other.group == op.group and {op.name, other.name} == {"send", "recv"}
    fits = (op.name, op.size, op.dtype) == (other.name, other.size, other.dtype)
    return other.peer is None and other.group == op.group and theirs == number and fits


def changed(document: Mapping[str, Any], **entries: Any) -> dict[str, Any]:
    """A document whose entries have other values; None takes a key away."""
    new = []
    for entry in document["entries"]:
        merged = {**entry, **entries}
        new.append({key: value for key, value in merged.items() if entries.get(key, 0) is not None})
    return {**document, "entries": new}
