"""The ranks' diff on the page of an incident: a table for each iteration, a column for each group of equal ranks."""

from __future__ import annotations

from hangwatch.model import DiffIteration, Incident, RanksDiff
from hangwatch.report import diff as text
from hangwatch.report.html.markup import Html, join, table, tag


def diff(incident: Incident) -> Html | None:
    """How the calls of the ranks differ; None where they do not, as far as they are recorded."""
    found = incident.verdict.diff
    if found is None or not found.iterations:
        return None
    partly = text.compared(found, len(incident.ranks))
    return join((*(_iteration(found, each) for each in found.iterations), tag("p", partly) if partly else None))


def _iteration(found: RanksDiff, iteration: DiffIteration) -> Html:
    rows = [[*(tag("code", cell) for cell in text.cells(found, row)), row.note] for row in iteration.rows]
    marked = [bool(row.note) for row in iteration.rows]
    heading = tag("h3", text.title(iteration))
    return join((heading, table([*text.heads(found), "difference"], rows, marked)))
