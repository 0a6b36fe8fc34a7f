"""Ranks that wait for a lock of multiprocessing, which the kernel does not list, and those that stand behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hangwatch.facts.case import Case, once
from hangwatch.model import Frame
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import name_of

_PYTHON = re.compile(r"/multiprocess(ing)?/synchronize\.py$")
_NATIVE = "SemLock_acquire"
_ACQUIRES = re.compile(r"\.acquire\(")
_ENTERS = frozenset({"__enter__", "acquire"})


@dataclass(frozen=True)
class SemaphoreWait:
    """`waiting` ranks sleep at the line `where`; `inside` stand in a collective in the block that begins there."""

    waiting: tuple[int, ...]
    where: Frame
    inside: tuple[int, ...]


@once
def semaphore_wait(case: Case) -> SemaphoreWait | None:
    """All ranks that are in no collective wait for a lock at one line; None where one of them does anything else."""
    outside = [view for view in case if view.rank not in case.blocked and not view.dead]
    places = {view.where for view in outside}
    where = places.pop() if len(places) == 1 else None
    if where is None or not all(_waits(case, view) for view in outside):
        return None
    inside = tuple(rank for rank in case.blocked if any(_in_block(case, where, frame) for frame in _user(case, rank)))
    return SemaphoreWait(tuple(view.rank for view in outside), where, inside)


def _waits(case: Case, view: RankView) -> bool:
    """It sleeps in the acquire of a lock that other processes share. C code has no frame: there its line says so."""
    process = view.evidence.process
    if process is None or process.system_call != "futex" or process.private_wait or not view.steady:
        return False
    if view.evidence.children:
        return False  # one of them may be the one that gives it
    frames = view.evidence.main_stack
    inner = frames[: frames.index(view.where)] if view.where in frames else frames
    return _ACQUIRES.search(case.text_of(view.where)) is not None or any(
        (frame.native and _NATIVE in frame.function)
        or (_PYTHON.search(frame.file) is not None and name_of(frame.function) in _ENTERS)
        for frame in inner
    )


def _user(case: Case, rank: int) -> Iterator[Frame]:
    return (frame for frame in case.ranks[rank].evidence.main_stack if not frame.native)


def _in_block(case: Case, where: Frame, frame: Frame) -> bool:
    """The quoted lines show `frame` in the block of the `with` at `where`: all between are indented further."""
    if frame.scope != where.scope or frame.line <= where.line:
        return False
    lines = {
        each.first + at: line
        for each in case.snapshot.excerpts
        if each.file == where.file
        for at, line in enumerate(each.lines)
    }
    block = [lines.get(number) for number in range(where.line, frame.line + 1)]
    if any(line is None for line in block):
        return False
    head, *body = [line or "" for line in block]
    return head.lstrip().startswith("with ") and all(_depth(line) > _depth(head) for line in body if line.strip())


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
