"""Logs, read line by line: which lines are of use is for each format's module to say."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

from . import attempt, elastic, events, pods, ras_answers, stacks
from .model import Logs

_GLUED = re.compile(r"(?<=.)(?=\[rank\d+\]:\[[EFWI])")
_KEYS = ("line", "log", "message", "MESSAGE", "msg", "_raw")  # of the text in a record of a collector of logs
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
_ERROR_FILE = "error.json"  # as torchrun has its processes write, each in a folder of its rank within the node
LONGEST = 1 << 14  # characters of a line that are looked at


def is_log(start: bytes) -> bool:
    """Whether a file's first bytes are those of a log with lines of use. Later lines of use are found by reading."""
    return (
        b"\0" not in start
        and not start.startswith((b"\x80", b"{", b"<", b"HANGWTCH"))
        and any(mark in start for mark in attempt.MARKS)
    )


def rank_of(path: Path, logs: Logs) -> int | None:
    """The rank of a log: torchrun writes `.../attempt_0/3/stderr.log`; other names say `rank`."""
    if found := re.findall(r"rank[-_]?(\d+)", path.name):
        return int(found[-1])
    local, attempt = path.parent.name, path.parent.parent
    of_attempt = attempt.name.startswith("attempt")
    if not (local.isdecimal() and (of_attempt or path.name == _ERROR_FILE)):
        return None
    first = logs.first_ranks.get(attempt, 0) if of_attempt else 0
    return None if first is None else first + int(local)


def read(path: Path, logs: Logs, plain: Path | None = None) -> bool:
    """Take the lines of use in a log, or a torchrun error file. False where there are none, or it is no text.

    `plain` is where its content lies, if that is elsewhere, as of a file that was unpacked.
    """
    rank, plain = rank_of(path, logs), plain or path
    if plain.suffix == ".json":
        with plain.open("rb") as file:
            start = file.read(1 << 8)
        small = plain.stat().st_size < (ras_answers.LARGEST if ras_answers.is_of_json(start) else LONGEST << 6)
        content = plain.read_bytes() if small else b""
        found = ras_answers.of_file(content, path, logs) or elastic.error_file(content, rank, logs)
        found = found or pods.of_json(content, logs) or events.of_json(content, logs)
        found = found or stacks.of_json(content, rank, logs)
    else:
        found, lines = _lines(plain, rank, logs, path)
        if lines is not None and not found:
            logs.unused[path] = lines
            logs.ranks.update({rank} if rank is not None and path.parent.name.isdecimal() else ())  # torchrun's folder
    if found:
        logs.files.append(path)
        if rank is not None:
            logs.ranks.add(rank)
    return found


def _lines(plain: Path, rank: int | None, logs: Logs, path: Path) -> tuple[bool, int | None]:
    """Whether a line of the last attempt is of use, and how many lines it has; None of what is no text, or empty."""
    with plain.open("rb") as file:
        start = file.read(1 << 12)
        if not start or b"\0" in start:
            return False, None
        before, begin = _last_attempts(file)
        if begin:
            logs.earlier = Logs() if logs.earlier is None else logs.earlier
            file.seek(before)
            if _taken(_raw_lines(file, begin - before), rank, logs.earlier, path)[0]:
                logs.earlier.files.append(path)
        file.seek(begin)
        return _taken(file, rank, logs, path)


def _taken(file: Iterable[bytes], rank: int | None, logs: Logs, path: Path) -> tuple[bool, int]:
    known, lines = set(logs.nameless), attempt.Attempt(rank, logs, path)
    taken = lines.take(_pieces(file))
    logs.named_in[path] = lines.named
    logs.nameless_in.update((path, raised) for raised in logs.nameless if raised not in known)
    return taken


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
