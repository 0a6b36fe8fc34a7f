"""Words for people: ranges, plurals, steps, files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from ..records import ExceptionFacts, Frame, StepName
from ..report import words as shared

SHOWN = shared.MOST_RUNS  # of a list, before "and N more"
IN_SOURCE = re.compile(r"^\[\S+\.(cc|cpp|h|hpp):\d+\] ")  # where in torch's own sources an error was made
ranges, size = shared.ranges, shared.size


def ranks(numbers: Iterable[int], *, capital: bool = False) -> str:
    """`rank 3`, `ranks 0-2 and 5`; "no rank" for none."""
    said = shared.ranks(numbers)
    return said.capitalize() if capital else said


def plural(count: int, noun: str) -> str:
    """`1 batch`, `2 batches`, `3 steps`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'ch', 'sh', 'x')) else 's'}"


def verb(count: int, one: str, many: str) -> str:
    """The form of a verb that fits `count`."""
    return one if count == 1 else many


def step(name: StepName) -> str:
    """`epoch 1, batch 12 (step 212)`, or as much of it as is known; "" for nothing."""
    if name.epoch is not None and name.batch is not None:
        place = f"epoch {name.epoch}, batch {name.batch}"
        return place if name.step is None else f"{place} (step {name.step})"
    if name.epoch is not None:
        return f"epoch {name.epoch}" if name.step is None else f"epoch {name.epoch} (step {name.step})"
    return "" if name.step is None else f"step {name.step}"


def place(frame: Frame | None) -> str:
    """`train.py:88`; "" where there is no frame."""
    if frame is None:
        return ""
    file = PurePath(frame.file).name or frame.file
    return f"{file}:{frame.line}" if frame.line else file


def at(frame: Frame | None) -> str:
    """` (train.py:88)`, ready to be put behind a clause; "" where there is no frame."""
    return f" ({place(frame)})" if frame is not None else ""


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def error(facts: ExceptionFacts | None, longest: int = 200) -> str:
    """`ValueError: the first line of its message`, or the type alone; "" for none."""
    if facts is None:
        return ""
    message = IN_SOURCE.sub("", facts.message.strip().partition("\n")[0])[:longest]
    return f"{facts.type}: {message}" if message else facts.type


def listed(parts: Iterable[str]) -> str:
    """`a, b and c`."""
    return _joined(parts, "and")


def either(parts: Iterable[str]) -> str:
    """`a, b or c`."""
    return _joined(parts, "or")


def _joined(parts: Iterable[str], last: str) -> str:
    found = list(parts)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}" if found else ""


def command(text: str, longest: int = 80) -> str:
    """A command line on one line, cut off with "..."."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."
