"""The dashboard's views of one incident, as one file: used where the dashboard's page is installed.

The page is built once, with a place for the incident: JSON in a script element that browsers do not run. What runs is
allowed by its hash in the page's own policy, and nothing is loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections import Counter
from dataclasses import replace
from html import escape
from pathlib import Path

from hangwatch.model import Collective, Frame, Incident, RankReport
from hangwatch.report import words
from hangwatch.stacks.frames import user_frame
from hangwatch.wire import codec

TITLE = "<title>hangwatch incident</title>"
PLACE = '{"hangwatch": "incident goes here"}'
WITHOUT_SCRIPT = "<!--hangwatch: without script-->"
STYLES = "style-src "  # of the page's policy

MOST_CALLS = 48  # of a group, of each rank; the page lines up 40
ALL_CALLS = 6000  # of all ranks together
MOST_STEPS = 160


def render(incident: Incident, style: str, body: str) -> str | None:
    """The whole document, None where the page is not installed. `style` and `body` are for browsers without script."""
    template = find_template()
    if template is None:
        return None
    text = template.read_text(encoding="utf-8").replace(STYLES, f"{STYLES}{_hash(style)} ", 1)
    return filled(text, incident, f"<style>{style}</style>{body}")


def _hash(style: str) -> str:
    """What the page's policy calls a style that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"


def find_template() -> Path | None:
    """The built page. Looked up, not imported: the dashboard may be absent, and its libraries are not needed."""
    found = importlib.util.find_spec("hangwatch_dashboard")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder) / "static" / "incident.html"
        if path.is_file():
            return path
    return None


def filled(template: str, incident: Incident, without_script: str = "") -> str:
    """The page with the incident in it. Nothing in an incident can end the element: it holds no "<".

    `without_script` is HTML for browsers that run no script.
    """
    name = incident.job.name or incident.job.id or "job"
    title = f"<title>{escape(words.clean(f'{name}: {words.headline(incident)}'))}</title>"
    head, _, rest = template.partition(PLACE)
    middle, _, tail = rest.partition(WITHOUT_SCRIPT)
    data = codec.dumps(slim(incident)).replace("<", "\\u003c")
    return "".join((head.replace(TITLE, title, 1), data, middle, without_script, tail))


def slim(incident: Incident) -> Incident:
    """The incident with as many calls and steps as the page shows. The JSON file beside it has them all."""
    most = max(2, min(MOST_CALLS, ALL_CALLS // max(len(incident.ranks), 1)))
    return replace(incident, ranks=tuple(_slim_rank(rank, most) for rank in incident.ranks))


def _slim_rank(rank: RankReport, most: int) -> RankReport:
    calls = rank.collectives
    calls = replace(calls, recent=_last(calls.recent, most), open_calls=_last(calls.open_calls, MOST_CALLS))
    reading = rank.reading and replace(rank.reading, calls=(), steps=rank.reading.steps[-MOST_STEPS:])
    return replace(rank, collectives=calls, reading=reading)


def _last(calls: tuple[Collective, ...], most: int) -> tuple[Collective, ...]:
    """The last calls of each group, each with the one frame that is shown."""
    seen: Counter[str] = Counter()
    kept: list[Collective] = []
    for call in reversed(calls):
        seen[call.group] += 1
        if seen[call.group] <= most:
            kept.append(replace(call, frames=_site(call.frames)))
    return tuple(reversed(kept))


def _site(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    own = user_frame(frames)
    return (own,) if own else frames[:1]
