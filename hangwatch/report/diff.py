"""The ranks' diff as text: `hangwatch report --diff`."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch import words
from hangwatch.model import DiffCall, DiffIteration, DiffRow, Incident, RanksDiff
from hangwatch.report.words import clean

NOTHING = "-"
_LONGEST = 80  # characters of one call in the terminal: the place, and the user's line above it


def render(incident: Incident) -> str:
    """The iterations in which the ranks' calls differ, a column for each group of equal ranks.

    One sentence where they do not differ, as far as they are recorded.
    """
    diff = incident.verdict.diff
    if diff is None or not diff.iterations:
        return "hangwatch: the recorded calls of the ranks do not differ, or were not recorded\n"
    return "\n".join(line.rstrip() for line in _lines(diff, len(incident.ranks))) + "\n"


def heads(diff: RanksDiff) -> list[str]:
    """`ranks 0, 2-3`: the titles of the columns."""
    return [words.ranks(lane) for lane in diff.lanes]


def title(iteration: DiffIteration) -> str:
    """`epoch 0, batch 5 (step 5)`, or as much of it as is known."""
    return words.step(iteration.step) or "an iteration without a number"


def told(call: DiffCall | None) -> str:
    """`all_reduce x2 (train.py:71, below train.py:90)`, `barrier (save, trainer.py:9, below fit.py:2)`."""
    if call is None:
        return NOTHING
    times = f" x{call.times}" if call.times > 1 else ""
    return clean(f"{call.op}{times}{_way(call)}{', waiting' if call.open else ''}")


def _way(call: DiffCall) -> str:
    """The call's place and the line above it: below a framework, the user's line that runs the framework."""
    outer = next((frame for frame in call.via if frame != call.where), None)
    lines = [words.place(frame) for frame in (call.where, outer) if frame is not None]
    if call.caller is not None:
        lines = [f"{call.caller.function}, {words.place(call.caller)}", *lines]
    return f" ({', below '.join(lines)})" if lines else ""


def cells(diff: RanksDiff, row: DiffRow) -> list[str]:
    """The row's calls, one for each lane, whatever a report from elsewhere holds."""
    found = [told(call) for call in row.calls[: len(diff.lanes)]]
    return found + [NOTHING] * (len(diff.lanes) - len(found))


def compared(diff: RanksDiff, ranks: int) -> str:
    """A sentence where not all ranks were compared; else ""."""
    return f"{diff.compared} of {ranks} ranks were compared" if diff.compared < ranks else ""


def _lines(diff: RanksDiff, ranks: int) -> Iterator[str]:
    titles = heads(diff)
    for iteration in diff.iterations:
        texts = [[text[:_LONGEST] for text in cells(diff, row)] for row in iteration.rows]
        widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
        yield f"  {clean(title(iteration))}"
        yield f"    {_columns(titles, widths)}"
        for row, line in zip(iteration.rows, texts, strict=True):
            yield f"    {_columns(line, widths)}{f'  <- {clean(row.note)}' if row.note else ''}"
    yield from (f"  {sentence}" for sentence in (compared(diff, ranks),) if sentence)


def _columns(texts: list[str], widths: list[int]) -> str:
    return "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True))
