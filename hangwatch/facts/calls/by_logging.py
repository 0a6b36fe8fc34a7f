"""Calls that are made as a log message is put in words: that is done only where the level of the message is enabled.

Programs enable it on one rank. So a reduction in `__str__` or `__repr__` is a call of that rank alone, behind a
condition that no line of the program's own shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.facts.call_site import Path, path
from hangwatch.facts.calls.last_calls import last_call
from hangwatch.facts.case import Case
from hangwatch.model import Frame
from hangwatch.stacks.frames import name_of, origin

_LOGGING = "/logging/__init__.py"
_FORMATS = frozenset({"getMessage", "format", "formatMessage"})


def logged_at(case: Case, rank: int, lines: Path) -> Frame | None:
    """The user's line that logs, if the call to which `lines` lead is made as that message is formatted."""
    return next((found for frames in _stacks(case, rank, lines) if (found := _logs(frames)) is not None), None)


def _stacks(case: Case, rank: int, lines: Path) -> Iterator[tuple[Frame, ...]]:
    """The stacks on record that lead to such a call."""
    view = case.ranks[rank]
    last = last_call(case, view)
    known = [view.evidence.main_stack, *((last.frames,) if last is not None else ())]
    known += [call.frames for call in case.ledger.calls(rank).values()]
    yield from (frames for frames in known if path(frames) == lines)


def _logs(frames: tuple[Frame, ...]) -> Frame | None:
    formats = (
        n for n, frame in enumerate(frames) if frame.file.endswith(_LOGGING) and name_of(frame.function) in _FORMATS
    )
    first = next(formats, None)
    return None if first is None else next((frame for frame in frames[first:] if origin(frame.file) == "user"), None)
