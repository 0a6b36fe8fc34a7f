"""Logs, read line by line: which lines are of use is for each format's module to say."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

from . import barrier, desync, elastic, kernel, nccl, rendezvous, slurm, spawn, tracebacks, watchdog
from .model import Logs

_MARKS = tuple(
    mark.encode()
    for each in (watchdog, nccl, elastic, barrier, rendezvous, slurm, spawn, tracebacks, kernel)
    for mark in each.MARKS
)
# What launchers and containers put before a line.
_LABEL = re.compile(
    r"(?:\[[a-z]+\d+\]:"  # torchrun --tee
    r"| *\d+: "  # srun --label
    r"|\[\d+,\d+\]<std(?:out|err)>: ?"  # mpirun --tag-output
    r"|\([^()]*pid=\d+[^()]*\) "  # Ray
    r"|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] )?"  # Kubernetes
    r")+(?=.)"
)
_OWN = re.compile(r"\[rank\d+\]:")  # torch's own: its words begin there, whatever stands before
_GLUED = re.compile(r"(?<=.)(?=\[rank\d+\]:\[[EFWI])")
_KEYS = ("line", "log", "message", "MESSAGE", "msg", "_raw")  # of the text in a record of a collector of logs
_COLOR = re.compile(r"\x1b\[[\d;]*m")
# torchrun's agent says that it starts its processes anew: what they said before is of an attempt that is over.
_ANEW = re.compile(rb"; will restart worker group|restart_count=[1-9]")
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


def read(path: Path, logs: Logs, plain: Path | None = None) -> bool:
    """Take the lines of use in a log, or a torchrun error file. False where there are none, or it is no text.

    `plain` is where its content lies, if that is elsewhere, as of a file that was unpacked.
    """
    rank, plain = rank_of(path), plain or path
    if plain.suffix == ".json":
        found = plain.stat().st_size < LONGEST << 6 and elastic.error_file(plain.read_bytes(), rank, logs)
    else:
        found = _lines(plain, rank, logs)
    if found:
        logs.files.append(path)
        if rank is not None:
            logs.ranks.add(rank)
    return found


def bare(line: str) -> str:
    """The line without what a launcher puts before it; torch's own `[rank3]:` stays."""
    if "\x1b" in line:
        line = _COLOR.sub("", line)
    if "[rank" in line and (own := _OWN.search(line)):
        return line[own.start() :]
    label = _LABEL.match(line)
    return line[label.end() :] if label else line


def _lines(path: Path, rank: int | None, logs: Logs) -> bool:
    table, late, raised, of_use = elastic.Table(), barrier.Barrier(), tracebacks.Tracebacks(), False
    last, spawned = nccl.LastError(), spawn.Spawned()
    with path.open("rb") as file:
        if b"\0" in file.read(1 << 12):
            return False
        _go_to_last_attempt(file)
        for said in _pieces(file):
            line = bare(said)
            told = late.take(line, logs) or watchdog.take(line, logs, rank) or nccl.take(line, logs, rank)
            told = raised.take(line, logs, rank) or last.take(line, logs, rank) or slurm.take(said, logs) or told
            told = told or desync.take(line, logs) or kernel.take(line, logs) or rendezvous.take(line, logs)
            of_use = told or spawned.take(line, logs) or table.take(line, logs) or of_use
    raised.end(logs)
    return of_use


def _pieces(file: BinaryIO) -> Iterator[str]:
    """The lines; two of torch's that ranks wrote into one, as they do where a line has no end, are two."""
    for raw in file:
        line = raw[:LONGEST].decode("utf-8", "replace").rstrip("\r\n")
        for said in _unwrapped(line) if line.startswith("{") else (line,):
            yield from _GLUED.split(said) if said.count("]:[") > 1 else (said,)


def _unwrapped(line: str) -> Sequence[str]:
    """What a collector of logs has put into a record of JSON: Docker, Loki, journald and others."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return (line,)
    said = next((record[key] for key in _KEYS if isinstance(record.get(key), str)), line)
    return said.splitlines() or ("",)


def _go_to_last_attempt(file: BinaryIO) -> None:
    """To behind the last line that says that the processes are started anew; to the beginning where none does."""
    begin = 0
    if os.fstat(file.fileno()).st_size:
        with mmap(file.fileno(), 0, access=ACCESS_READ) as whole:
            for found in _ANEW.finditer(whole):
                begin = whole.find(b"\n", found.end()) + 1 or len(whole)
    file.seek(begin)
