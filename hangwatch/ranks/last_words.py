"""What the last lines of a rank's output say about its end: lines in, facts out.

Backends, launchers and the kernel end processes, and most of them write a line before. Each fact keeps its line, so
that a person can check it. A fact says what ended a process, never which rank is to blame: a backend that aborts a rank
for a message of the wrong size may owe it to a mistake of any member of the group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LONGEST = 400  # characters of a line that are kept


class Kind(StrEnum):
    """What a line says."""

    SIZE_MISMATCH = "size-mismatch"  # gloo: a peer's message has another size than this rank's call expects
    CONNECTION = "connection"  # closed, reset or refused by the other end
    TIMEOUT = "timeout"  # a call waited for longer than its group's timeout
    WATCHDOG = "watchdog"  # torch's NCCL watchdog ends the rank for a collective that did not complete
    NCCL_STATE = "nccl-state"  # the numbers of the last enqueued and completed work, as the watchdog prints them
    TERMINATED = "terminated"  # C++ ended the process: terminate called
    OUT_OF_MEMORY = "out-of-memory"  # the kernel killed a process for want of memory
    DEVICE = "device"  # CUDA: out of memory, illegal access, assertion, ECC, Xid
    CRASH = "crash"  # faulthandler: segmentation fault, abort
    EXCEPTION = "exception"  # the last line of a Python traceback


BACKEND = frozenset({Kind.SIZE_MISMATCH, Kind.TIMEOUT, Kind.WATCHDOG})  # the backend's reason to end a rank
OWN_FAULT = frozenset({Kind.OUT_OF_MEMORY, Kind.DEVICE})  # an error of the process itself, whatever its peers did


@dataclass(frozen=True)
class LastWord:
    """One fact. `rank` is the rank that the line names. Sizes are bytes. What does not apply is None or empty."""

    kind: Kind
    line: str
    rank: int | None = None
    received: int | None = None  # size of the peer's message
    expected: int | None = None  # size that this rank's call has room for
    peer: str = ""  # address of the other end
    timeout_s: float | None = None
    seq: int | None = None  # number of the collective in its group
    op: str = ""  # as the backend spells it: ALLREDUCE
    group: str = ""  # name or identifier of the process group
    pid: int | None = None  # the process that was killed


def last_words(text: str) -> tuple[LastWord, ...]:
    """The facts in the last lines of an output, in their order; what is said twice is kept once."""
    lines = [line.rstrip() for line in text.splitlines()]
    found = [word for line in lines if (word := word_of(line)) is not None]
    return tuple(dict.fromkeys((*found, *_exceptions(lines))))


def word_of(line: str) -> LastWord | None:
    """What one line says of an end; None for most lines."""
    match = _ANY.search(line)
    if match is None:
        return None
    kind = Kind(str(match.lastgroup).replace("_", "-"))
    return LastWord(kind, line.strip()[:LONGEST], **_details(kind, line))


def rank_of(line: str) -> int | None:
    """The rank that a line names as its own: `[rank1]:`, `[Rank 1]`, `[PG ID 0 ... Rank 1]`."""
    match = _RANK.search(line)
    return int(match[1]) if match is not None else None


# One alternative for each kind; the first that fits is taken. Sources: gloo/transport/tcp/pair.cc and
# unbound_buffer.cc, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, mm/oom_kill.c, Python's faulthandler.
_ANY = re.compile(
    r"(?P<size_mismatch>Received data size doesn't match expected size|op\.preamble\.length <= op\.nbytes)"
    r"|(?P<watchdog>Watchdog caught collective operation timeout|Heartbeat monitor timed out"
    r"|some NCCL operations have failed or timed out|taking the entire process down)"
    r"|(?P<nccl_state>last enqueued (?:NCCL )?work: ?-?\d)"
    r"|(?P<timeout>Timed out waiting \d+ ?ms|Wait timeout|Application timeout caused pair closure)"
    r"|(?P<connection>Connection (?:closed by peer|reset by peer|refused|closed)|Broken pipe"
    r"|remote process exited or there was a network error|recvBytes|Socket (?:closed|Timeout))"
    r"|(?P<out_of_memory>[Oo]ut of memory: Killed process|oom-kill event|oom_reaper|OOM Killed)"
    r"|(?P<device>CUDA out of memory|CUDA error: |NVRM: Xid|device-side assert triggered|uncorrectable ECC)"
    r"|(?P<terminated>terminate called (?:after|without|recursively))"
    r"|(?P<crash>Fatal Python error: )"
)
_RANK = re.compile(r"\[(?:[^\[\]]*\b)?rank ?(\d{1,7})\]", re.IGNORECASE)

# Name of a field, and where its value stands in a line. A pattern without its words in the line leaves the field out.
_NUMBERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("seq", re.compile(r"WorkNCCL\(SeqNum=(\d+)|(?:watchdog )?at (?:NCCL )?work: ?(\d+)")),
    ("pid", re.compile(r"Killed process (\d+)")),
)
_SECONDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("timeout_s", re.compile(r"Timeout\(ms\)=(\d+)|Timed out waiting (\d+) ?ms")),
)
_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("op", re.compile(r"OpType=(\w+)")),
    ("group", re.compile(r"\[PG (?:ID \d+ PG )?GUID ([^\s\]]+)|\[PG (?!ID|GUID)([^\s\]]+)")),
    ("peer", re.compile(r"(\[[0-9a-fA-F.:]+\]:\d+)")),
)
_SIZES = re.compile(r"op\.nbytes\. (\d+) vs (\d+)")


def _details(kind: Kind, line: str) -> dict[str, Any]:
    """The values that stand in a line, as fields of a LastWord."""
    found: dict[str, Any] = {"rank": rank_of(line)}
    found |= {name: int(value) for name, value in _values(_NUMBERS, line)}
    found |= {name: int(value) / 1000 for name, value in _values(_SECONDS, line)}
    found |= dict(_values(_WORDS, line))
    if kind is Kind.SIZE_MISMATCH and (sizes := _SIZES.search(line)) is not None:
        found |= {"received": int(sizes[1]), "expected": int(sizes[2])}
    return found


def _values(patterns: tuple[tuple[str, re.Pattern[str]], ...], line: str) -> Iterator[tuple[str, str]]:
    for name, pattern in patterns:
        if (match := pattern.search(line)) is not None:
            yield name, next(group for group in match.groups() if group is not None)


# ------------------------------------------------------------------------------------------ tracebacks

_PREFIX = re.compile(r"^\[(?:rank|default)\d+\]: ?")  # as torchrun and torch's excepthook put it before each line
_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Failure)\w*)(?:: (.*))?$")


def _exceptions(lines: list[str]) -> Iterator[LastWord]:
    """The Python tracebacks. Lines of several ranks may be mixed: each rank's are read by themselves."""
    inside: set[int | None] = set()
    for line in lines:
        rank, bare = rank_of(line), _PREFIX.sub("", line)
        if bare.startswith("Traceback (most recent call last)"):
            inside.add(rank)
        elif rank in inside and _ERROR.match(bare) is not None:
            inside.discard(rank)
            yield LastWord(Kind.EXCEPTION, line.strip()[:LONGEST], rank)
