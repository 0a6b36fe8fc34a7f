"""How fast the ranks were before the job stopped: who was waited for, nodes, ranks."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.model import Incident, Pace
from hangwatch.report import words
from hangwatch.report.html.markup import Child, Html, table, tag

HEAD = ("behind", "trend", "data", "forward", "the rest", "waits for data")


def findings(incident: Incident) -> Html | None:
    """One sentence for each slow rank or node, and for memory on another rank's GPU."""
    return tag("ul", *(tag("li", each) for each in said)) if (said := words.health(incident)) else None


def nodes(incident: Incident) -> Html | None:
    """Nodes, slowest first, where there are several."""
    known = incident.health.nodes if incident.health is not None else ()
    return _table(("node", "ranks"), [((pace.host, pace.ranks), pace) for pace in known]) if len(known) > 1 else None


def ranks(incident: Incident) -> Html | None:
    """Ranks, slowest first."""
    known = incident.health.worst if incident.health is not None else ()
    return _table(("rank", "node"), [((pace.ranks, pace.host), pace) for pace in known])


def _table(names: Sequence[str], rows: Sequence[tuple[tuple[Child, ...], Pace]]) -> Html | None:
    return table((*names, *HEAD), [(*first, *_cells(pace)) for first, pace in rows]) if rows else None


def _cells(pace: Pace) -> tuple[Child, ...]:
    parts = (
        words.milliseconds(series[-1]) if series else None for series in (pace.data_s, pace.forward_s, pace.wait_s)
    )
    return (words.milliseconds(pace.lag_s), str(pace.trend), *parts, f"{pace.data_share:.0%}")
