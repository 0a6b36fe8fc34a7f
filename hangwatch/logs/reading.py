"""Logs, read line by line: which lines are of use is for each format's module to say."""

from __future__ import annotations

import re
from pathlib import Path

from . import barrier, elastic, nccl, tracebacks, watchdog
from .model import Logs

_MARKS = tuple(
    mark.encode() for mark in (*watchdog.MARKS, *nccl.MARKS, *elastic.MARKS, *barrier.MARKS, *tracebacks.MARKS)
)
# What launchers put before a line: torchrun --tee, srun --label, Ray.
_LABEL = re.compile(r"(?:\[[a-z]+\d+\]:|\d+: |\([^()]*pid=\d+[^()]*\) )+(?=.)")
LONGEST = 1 << 14  # characters of a line that are looked at


def is_log(start: bytes) -> bool:
    """Whether a file's first bytes are those of a log with lines of use. Later lines of use are found by reading."""
    return (
        b"\0" not in start
        and not start.startswith((b"\x80", b"{", b"<", b"HANGWTCH"))
        and any(mark in start for mark in _MARKS)
    )


def rank_of(path: Path) -> int | None:
    """The rank of a log: torchrun writes `.../attempt_0/3/stderr.log`; other names say `rank`."""
    if found := re.findall(r"rank[-_]?(\d+)", path.name):
        return int(found[-1])
    folder = path.parent.name
    return int(folder) if folder.isdecimal() and path.parent.parent.name.startswith("attempt") else None


def read(path: Path, logs: Logs) -> bool:
    """Take the lines of use in a log, or a torchrun error file. False where there are none, or it is no text."""
    rank = rank_of(path)
    if path.suffix == ".json":
        found = path.stat().st_size < LONGEST << 6 and elastic.error_file(path.read_bytes(), rank, logs)
    else:
        found = _lines(path, rank, logs)
    if found:
        logs.files.append(path)
        if rank is not None:
            logs.ranks.add(rank)
    return found


def bare(line: str) -> str:
    """The line without what a launcher puts before it; torch's own `[rank3]:` stays."""
    label = _LABEL.match(line)
    if label is None:
        return line
    own = label[0].find("[rank")
    return line[own if own >= 0 else label.end() :]


def _lines(path: Path, rank: int | None, logs: Logs) -> bool:
    table, late, raised, of_use = elastic.Table(), barrier.Barrier(), tracebacks.Tracebacks(), False
    with path.open("rb") as file:
        if b"\0" in file.read(1 << 12):
            return False
        file.seek(0)
        for raw in file:
            line = bare(raw[:LONGEST].decode("utf-8", "replace").rstrip("\r\n"))
            told = late.take(line, logs) or watchdog.take(line, logs, rank) or nccl.take(line, logs, rank)
            told = raised.take(line, logs, rank) or told
            of_use = told or table.take(line, logs) or of_use
    return of_use
