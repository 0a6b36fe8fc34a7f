"""The verdict as the terminal shows it: sentences first, then what to do; one screen.

Colours are written by hand: the watchdog prints this when things go wrong, and needs no library for it.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TextIO

from hangwatch.model import Incident, Status, Verdict
from hangwatch.report import words

NARROWEST = 40
MOST_WAITS = 4  # of the chain that are told on one screen
SCREEN = 24  # lines; on screens of 100 columns the whole fits
_WIDEST = 110  # longer lines are hard to read on any screen
_LABEL = 8  # width of the column of labels
_BOLD, _RED, _YELLOW, _GREEN, _BLUE = "1", "1;31", "1;33", "1;32", "36"
_HEADLINE = {Status.RECOVERED: _GREEN, Status.LINGERING: _YELLOW, Status.WAITING: _YELLOW}


def render(
    incident: Incident, width: int = 100, color: bool = False, report: str = "", *, verbose: bool = False
) -> str:
    """What to print for an incident, ending in a line break. `report` is the file that holds the rest.

    It fits one screen; `verbose` shows every sentence of the argument and the evidence instead.
    """
    page = _Page(min(max(width, NARROWEST), _WIDEST), color, whole=verbose)
    style = _HEADLINE.get(incident.status, _RED)
    lines = [*page.wrapped(f"hangwatch: {words.headline(incident)}", 0, style, most=2), ""]
    lines += page.wrapped(incident.verdict.summary or words.NO_VERDICT, 2, _BOLD, most=4)
    for sentence in incident.verdict.details[: None if verbose else 3]:
        lines += page.wrapped(sentence, 2, most=2)
    lines.append("")
    rows = [page.row(row) for row in _rows(incident, verbose)]
    if report:
        rows.append(page.uncut_row("report", report))
    lines += _fitting(rows, sys.maxsize if verbose else SCREEN - len(lines))
    return "\n".join(lines) + "\n"


def next_time(incident: Incident, width: int = 100) -> str:
    """What to check first next time, as a numbered list; "" where there is nothing that would have helped."""
    page = _Page(min(max(width, NARROWEST), _WIDEST), color=False)
    lines = ["", "  next time, check first" if incident.check_next else ""]
    for number, each in enumerate(incident.check_next, 1):
        lines.append(f"  {number}. {words.clean(each.command)}   ({words.clean(each.check)})")
        lines += page.wrapped(each.why, 5, most=3)
    return "\n".join(lines) + "\n" if incident.check_next else ""


def show(
    incident: Incident,
    stream: TextIO,
    report: str = "",
    environment: Mapping[str, str] = os.environ,
    *,
    verbose: bool = False,
) -> None:
    """Print an incident on `stream` as wide and as colourful as it allows, in one write."""
    interactive = stream.isatty()
    width = shutil.get_terminal_size((100, 24)).columns if interactive else 100
    text = render(incident, width, colorful(stream, environment), report, verbose=verbose)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def colorful(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to colour what is printed there: a terminal that can, where no variable asks not to."""
    if environment.get("NO_COLOR"):
        return False
    return stream.isatty() and environment.get("TERM") != "dumb"


@dataclass(frozen=True)
class _Row:
    """A labelled part; the one with the greatest `rank` is the first to go where the screen is too small."""

    label: str
    text: str
    rank: int
    most: int = 2
    lines: tuple[str, ...] = ()


def _rows(incident: Incident, verbose: bool) -> Iterator[_Row]:
    verdict = incident.verdict
    most = sys.maxsize if verbose else None
    if verdict.fix:
        yield _Row("fix", verdict.fix, 0, most=4)
    if verdict.culprits:
        yield _Row("who", words.culprits(verdict.culprits), 0)
    if waits := words.chain(verdict):
        yield _Row("chain", "; ".join(waits[: most or MOST_WAITS]), 2, most=4)
    yield from _argument(verdict, most or 2)
    for sentence, rank in zip(verdict.evidence[: most or 3], chain((2, 5, 8), repeat(9)), strict=False):
        yield _Row("seen", sentence, rank)
    for other, rank in zip(verdict.alternatives[: most or 2], chain((3, 7), repeat(9)), strict=False):
        yield _Row("or" if other.open else "not", f"{other.cause}: {other.why_not}", rank)
    if missing := words.missing_evidence(incident):
        yield _Row("lacks", missing, 1)
    if incident.warnings:
        yield _Row("also", incident.warnings[0].summary, 4)
    elif said := words.health(incident):
        yield _Row("also", said[0], 4)


def _argument(verdict: Verdict, most: int) -> Iterator[_Row]:
    """Why the job is dead: its own rows, apart from what speaks for the cause."""
    if verdict.hang is None or verdict.hang not in words.ARGUMENT:
        return
    label, _ = words.ARGUMENT[verdict.hang]
    for sentence, rank in zip(verdict.argument[:most], chain((2, 6), repeat(9)), strict=False):
        yield _Row(label, sentence, rank, most=4)


def _fitting(rows: list[_Row], room: int) -> Iterator[str]:
    """The lines of the rows that fit, each label said once."""
    kept = list(rows)
    while kept and sum(len(row.lines) for row in kept) > room:
        least = max(kept, key=lambda row: row.rank)
        if least.rank == 0:
            break
        kept.remove(least)
    said = ""
    for row in kept:
        first, *rest = row.lines
        yield first.replace(row.label, " " * len(row.label), 1) if row.label == said else first
        yield from rest
        said = row.label


class _Page:
    """Wraps text to a width and colours it, and cuts what is too long unless it shows the `whole`.

    Everything that comes in is cleaned first.
    """

    def __init__(self, width: int, color: bool, *, whole: bool = False) -> None:
        self.width, self.color, self.whole = width, color, whole

    def wrapped(self, text: str, indent: int, style: str = "", *, most: int) -> list[str]:
        """Lines behind `indent` spaces; `most` is how many they may be on a screen of 100 columns."""
        room = self.width - indent
        most = sys.maxsize if self.whole else max(most, -(-most * (100 - indent) // room))
        lines = textwrap.wrap(words.clean(text), room, max_lines=most, placeholder=" ...", break_on_hyphens=False)
        return [" " * indent + _styled(line, style, self.color) for line in lines]

    def row(self, row: _Row) -> _Row:
        first, *rest = self.wrapped(row.text, 2 + _LABEL, most=row.most) or [""]
        return replace(row, lines=(self._labelled(row.label, first.strip()), *rest))

    def uncut_row(self, label: str, text: str) -> _Row:
        """A row that stays on one line however long it is, to be copied."""
        return _Row(label, text, 0, lines=(self._labelled(label, words.clean(text)),))

    def _labelled(self, label: str, text: str) -> str:
        return f"  {_styled(label, _BLUE, self.color)}{' ' * (_LABEL - len(label))}{text}".rstrip()


def _styled(text: str, style: str, color: bool) -> str:
    return f"\033[{style}m{text}\033[0m" if color and style and text else text
