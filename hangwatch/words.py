"""Words for people: ranges, plurals, steps, files."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

from hangwatch.model import Collective, ExceptionFacts, Frame, LoaderFacts, StepName

LONGEST = 240  # characters of a message that are told
SHOWN = 8  # of a list, before "and N more": longer lists are not read
IN_SOURCE = re.compile(
    r"^\[(?:enforce fail at )?\S+\.(cc|cpp|h|hpp):\d+\] "
)  # where in torch's own sources an error was made


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as (first, last): 0, 1, 2, 5 gives (0, 2), (5, 5)."""
    result: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if result and result[-1][1] == number - 1:
            result[-1] = (result[-1][0], number)
        else:
            result.append((number, number))
    return result


def ranges(numbers: Iterable[int]) -> str:
    """0-2 and 5."""
    found = runs(numbers)
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in found[:SHOWN]]
    if rest := sum(last - first + 1 for first, last in found[SHOWN:]):
        parts.append(f"{rest} more")
    return listed(parts)


def ranks(numbers: Iterable[int], *, capital: bool = False) -> str:
    """`rank 3`, `ranks 0-2 and 5`; "no rank" for none."""
    known = set(numbers)
    said = f"rank{'s' if len(known) > 1 else ''} {ranges(known)}" if known else "no rank"
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


def in_step(name: StepName) -> str:
    """` in epoch 1, batch 12 (step 212)`, ready to be put behind a clause; "" where nothing is known."""
    said = step(name)
    return f" in {said}" if said else ""


def place(frame: Frame | None) -> str:
    """`train.py:88`; "" where there is no frame."""
    if frame is None:
        return ""
    file = frame.file.rstrip("/").rpartition("/")[2] or frame.file
    return f"{file}:{frame.line}" if frame.line else file


def at(frame: Frame | None) -> str:
    """` (train.py:88)`, ready to be put behind a clause; "" where there is no frame."""
    return f" ({place(frame)})" if frame is not None else ""


def inside(calls: Iterable[Collective], loaders: Iterable[LoaderFacts]) -> str:
    """What a rank has entered and not left: `all_reduce 12 of group 0`, `a batch of loader 1`; "" for nothing."""
    for call in calls:
        return (
            f"{call.op} {call.seq} of group {call.group}" if call.peer is None else f"{call.op} with rank {call.peer}"
        )
    return next((f"a batch of loader {loader.index}" for loader in loaders if loader.inside_next), "")


def duration(seconds: float) -> str:
    """3.1 s, 95 s, 12 min 5 s, 3 h 20 min."""
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """Bytes with a unit: 512 B, 3.4 MiB, 80 GiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"


def error(facts: ExceptionFacts | None, longest: int = LONGEST) -> str:
    """`ValueError: the first line of its message`, or the type alone; "" for none."""
    if facts is None:
        return ""
    message = shortened(IN_SOURCE.sub("", facts.message.strip().partition("\n")[0]), longest)
    return f"{facts.type}: {message}" if message else facts.type


def shortened(text: str, longest: int) -> str:
    """At most so many characters, and then `...` behind the last whole word."""
    if len(text) <= longest:
        return text
    start, space, _ = text[:longest].rpartition(" ")
    return f"{start if space else text[:longest]} ..."


def ended(exit_code: int | None) -> str:
    """`exit code 3`, `killed by SIGKILL` where the code is negative; None is not known."""
    if exit_code is None:
        return "how is not known"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {-exit_code}"


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


def capital(text: str) -> str:
    """The text with a capital letter at its beginning; the rest stays as it is."""
    return f"{text[:1].upper()}{text[1:]}"
