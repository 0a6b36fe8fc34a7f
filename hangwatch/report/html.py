"""One self-contained HTML file of an incident: no script, nothing loaded from elsewhere, no server."""

from __future__ import annotations

from html import escape

from hangwatch.records import Incident
from hangwatch.report import words


def render(incident: Incident) -> str:
    """The whole document."""
    verdict = incident.verdict
    return (
        f"<!doctype html><title>{escape(words.headline(incident))}</title>"
        f"<h1>{escape(words.headline(incident))}</h1><p>{escape(words.clean(verdict.summary))}</p>"
    )
