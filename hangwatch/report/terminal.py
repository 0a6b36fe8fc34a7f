"""The verdict as the terminal shows it: sentences first, then what to do; one screen.

Colours are written by hand: the watchdog prints this when things go wrong, and needs no library for it.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TextIO

from hangwatch.records import Incident, Status, Verdict
from hangwatch.report import words

NARROWEST = 40
SCREEN = 24  # lines; on screens of 100 columns the whole fits
_WIDEST = 110  # longer lines are hard to read on any screen
_LABEL = 8  # width of the column of labels
_BOLD, _RED, _YELLOW, _GREEN, _BLUE = "1", "1;31", "1;33", "1;32", "36"
_HEADLINE = {Status.RECOVERED: _GREEN, Status.LINGERING: _YELLOW, Status.WAITING: _YELLOW}


def render(incident: Incident, width: int = 100, color: bool = False, report: str = "") -> str:
    """What to print for an incident, ending in a line break. `report` is the file that holds the rest."""
    page = _Page(min(max(width, NARROWEST), _WIDEST), color)
    style = _HEADLINE.get(incident.status, _RED)
    lines = [*page.wrapped(f"hangwatch: {words.headline(incident)}", 0, style, most=2), ""]
    lines += page.wrapped(incident.verdict.summary or words.NO_VERDICT, 2, _BOLD, most=4)
    for sentence in incident.verdict.details[:3]:
        lines += page.wrapped(sentence, 2, most=2)
    lines.append("")
    rows = [page.row(row) for row in _rows(incident)]
    if report:
        rows.append(page.uncut_row("report", report))
    lines += _fitting(rows, SCREEN - len(lines))
    return "\n".join(lines) + "\n"


def waiting_line(verdict: Verdict, still_s: float, color: bool = False) -> str:
    """One line, for a live job that waits for somebody who still works: shown, and no report of its own."""
    sentence = words.clipped(verdict.summary or words.NO_VERDICT, 200)
    return f"hangwatch: {_styled('WAITING', _YELLOW, color)} for {words.duration(still_s)}: {sentence}\n"


def show(incident: Incident, stream: TextIO, report: str = "", environment: Mapping[str, str] = os.environ) -> None:
    """Print an incident on `stream` as wide and as colourful as it allows, in one write."""
    interactive = stream.isatty()
    width = shutil.get_terminal_size((100, 24)).columns if interactive else 100
    text = render(incident, width, colorful(stream, environment), report)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def colorful(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to colour what is printed there: a terminal that can, and nobody who asked not to."""
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


def _rows(incident: Incident) -> Iterator[_Row]:
    verdict = incident.verdict
    if verdict.fix:
        yield _Row("fix", verdict.fix, 0, most=4)
    if verdict.culprits:
        yield _Row("who", words.culprits(verdict.culprits), 0)
    for place, sentence in enumerate(verdict.evidence[:3]):
        yield _Row("seen", sentence, (2, 5, 7)[place])
    for place, other in enumerate(verdict.alternatives[:2]):
        yield _Row("not", f"{other.cause}: {other.why_not}", (3, 6)[place])
    if missing := words.missing_evidence(incident):
        yield _Row("lacks", missing, 1)
    if incident.warnings:
        yield _Row("also", incident.warnings[0].summary, 4)


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
    """Wraps text to a width and colours it. Everything that comes in is cleaned first."""

    def __init__(self, width: int, color: bool) -> None:
        self.width, self.color = width, color

    def wrapped(self, text: str, indent: int, style: str = "", *, most: int) -> list[str]:
        """Lines behind `indent` spaces; `most` is how many they may be on a screen of 100 columns."""
        room = self.width - indent
        most = max(most, -(-most * (100 - indent) // room))
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
