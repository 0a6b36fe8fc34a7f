"""Words for people: ranges, plurals, steps, files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from ..records import Frame, StepName

SHOWN = 8  # ranges named before "and N more"


def ranges(numbers: Iterable[int]) -> str:
    """`0-2, 5` for 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    if len(words) <= SHOWN:
        return ", ".join(words)
    rest = sum(b - a + 1 for a, b in runs[SHOWN:])
    return f"{', '.join(words[:SHOWN])} and {rest} more"


def ranks(numbers: Iterable[int], *, capital: bool = False) -> str:
    """`rank 3`, `ranks 0-2`, `ranks 0 and 3`; "no rank" for none."""
    found = sorted(set(numbers))
    word = "Rank" if capital else "rank"
    if not found:
        return "No rank" if capital else "no rank"
    if len(found) == 1:
        return f"{word} {found[0]}"
    if len(found) == 2 and found[1] != found[0] + 1:
        return f"{word}s {found[0]} and {found[1]}"
    return f"{word}s {ranges(found)}"


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


def listed(parts: Iterable[str]) -> str:
    """`a, b and c`."""
    found = list(parts)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}" if found else ""


def command(text: str, longest: int = 80) -> str:
    """A command line on one line, cut off with "..."."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."
