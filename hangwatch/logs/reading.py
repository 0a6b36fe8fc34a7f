"""Logs, read line by line: which lines are of use is for each format's module to say."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

from . import (
    barrier,
    desync,
    elastic,
    going_on,
    kernel,
    last_words,
    mpirun,
    nccl,
    rendezvous,
    slurm,
    spawn,
    tracebacks,
    watchdog,
)
from .model import Logs

_MARKS = tuple(
    mark.encode()
    for each in (watchdog, nccl, elastic, barrier, rendezvous, slurm, spawn, tracebacks, kernel, mpirun)
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
# Or a launcher begins, behind the table of failures of another one.
_BEGINS = re.compile(
    rb"; will restart worker group|restart_count=[1-9]"
    rb"|^[WIE](?P<launched>\d{4} \d\d:\d\d:\d\d)[^\n]{0,40} torch/distributed/run\.py:\d+\] \*{20}"
    rb"|^ *time +: (?P<failed>\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)",
    re.MULTILINE,
)
_APART_S = 60.0
_OF_ONE_RESTART = 1 << 12  # bytes between lines of one restart, of several nodes maybe
LONGEST = 1 << 14  # characters of a line that are looked at


def is_log(start: bytes) -> bool:
    """Whether a file's first bytes are those of a log with lines of use. Later lines of use are found by reading."""
    return (
        b"\0" not in start
        and not start.startswith((b"\x80", b"{", b"<", b"HANGWTCH"))
        and any(mark in start for mark in _MARKS)
    )


def rank_of(path: Path, logs: Logs) -> int | None:
    """The rank of a log: torchrun writes `.../attempt_0/3/stderr.log`; other names say `rank`."""
    if found := re.findall(r"rank[-_]?(\d+)", path.name):
        return int(found[-1])
    local, attempt = path.parent.name, path.parent.parent
    if not (local.isdecimal() and attempt.name.startswith("attempt")):
        return None
    first = logs.first_ranks.get(attempt, 0)
    return None if first is None else first + int(local)


def read(path: Path, logs: Logs, plain: Path | None = None) -> bool:
    """Take the lines of use in a log, or a torchrun error file. False where there are none, or it is no text.

    `plain` is where its content lies, if that is elsewhere, as of a file that was unpacked.
    """
    rank, plain = rank_of(path, logs), plain or path
    if plain.suffix == ".json":
        found = plain.stat().st_size < LONGEST << 6 and elastic.error_file(plain.read_bytes(), rank, logs)
    else:
        found, lines = _lines(plain, rank, logs)
        if lines is not None and not found:
            logs.unused[path] = lines
            logs.ranks.update({rank} if rank is not None and path.parent.name.isdecimal() else ())  # torchrun's folder
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


def _lines(path: Path, rank: int | None, logs: Logs) -> tuple[bool, int | None]:
    """Whether a line of the last attempt is of use, and how many lines it has; None of what is no text, or empty."""
    with path.open("rb") as file:
        start = file.read(1 << 12)
        if not start or b"\0" in start:
            return False, None
        before, begin = _last_attempts(file)
        if begin:
            logs.earlier = logs.earlier or Logs()
            file.seek(before)
            if _attempt(_raw_lines(file, begin - before), rank, logs.earlier)[0]:
                logs.earlier.files.append(path)
        file.seek(begin)
        return _attempt(file, rank, logs)


def _attempt(file: Iterable[bytes], rank: int | None, logs: Logs) -> tuple[bool, int]:
    table, late, raised, of_use = elastic.Table(), barrier.Barrier(), tracebacks.Tracebacks(), False
    last, spawned, count = nccl.LastError(), spawn.Spawned(), 0
    on, said_last = going_on.GoingOn(logs), last_words.LastWords(rank)
    turns = defaultdict[int | None, going_on.Turns](going_on.Turns)  # of each rank whose exception came before
    for said in _pieces(file):
        count += 1
        line = bare(said)
        told = late.take(line, logs) or watchdog.take(line, logs, rank) or nccl.take(line, logs, rank)
        told = raised.take(line, logs, rank) or last.take(line, logs, rank) or slurm.take(said, logs) or told
        told = told or desync.take(line, logs) or kernel.take(line, logs) or rendezvous.take(line, logs)
        told = told or spawned.take(line, logs) or table.take(line, logs) or mpirun.take(line, logs)
        whose = last_words.rank_of(line, rank)
        if whose is not None and not told and raised.is_followed(whose) and turns[whose].take(_OWN.sub("", line)):
            raised.went_on(whose, logs)
        on.take(line, of_use=told)
        said_last.take(line, of_use=told)
        of_use = told or of_use
    of_use = raised.end(logs) or of_use
    said_last.end(logs)
    return of_use, count


def _raw_lines(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The lines of the next `size` bytes."""
    while size > 0 and (raw := file.readline()):
        size -= len(raw)
        yield raw


def _pieces(file: Iterable[bytes]) -> Iterator[str]:
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


def _last_attempts(file: BinaryIO) -> tuple[int, int]:
    """Where the last two attempts begin: behind a line that says that the processes are started anew, or at 0.

    So does one of a launcher that is started well after the end of another, as in a file to which each run is appended.
    Of several such lines that follow one another, as those of one restart do, nothing but the last one counts.
    """
    before = begin = 0
    ended: datetime | None = None  # when a launcher before it saw a process fail
    if os.fstat(file.fileno()).st_size:
        with mmap(file.fileno(), 0, access=ACCESS_READ) as whole:
            for found in _BEGINS.finditer(whole):
                if found["failed"] is not None:
                    ended = _moment(found["failed"])
                    continue
                if found["launched"] is not None and not _is_after(ended, found["launched"]):
                    continue
                ended = None
                behind = whole.find(b"\n", found.end()) + 1 or len(whole)
                if found.start() - begin > _OF_ONE_RESTART:
                    before = begin
                begin = behind
    return before, begin


def _moment(said: bytes) -> datetime | None:
    try:
        return datetime.strptime(said.decode(), "%Y-%m-%d_%H:%M:%S")
    except ValueError:
        return None


def _is_after(ended: datetime | None, launched: bytes) -> bool:
    """A launcher that starts so late is none of another node's. Its lines do not tell the year."""
    if ended is None:
        return False
    try:
        began = datetime.strptime(f"{ended.year} {launched.decode()}", "%Y %m%d %H:%M:%S")
    except ValueError:
        return False
    return (began - ended).total_seconds() > _APART_S
