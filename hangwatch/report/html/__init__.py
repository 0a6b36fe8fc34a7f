"""One self-contained HTML file of an incident: nothing loaded from elsewhere, no server needed.

`page` is what is written beside an incident; `render` makes the plain page, without any script.

It says first what the terminal says, in the same words, and then shows the evidence.
"""

from __future__ import annotations

import base64
import hashlib
import time
from functools import cache
from importlib import resources

from hangwatch.model import Incident
from hangwatch.report import words
from hangwatch.report.html import collectives, health, histories, interactive, machine, ranks, stacks, verdict
from hangwatch.report.html.markup import Html, join, section, tag


def page(incident: Incident) -> str:
    """The interactive page where it is installed, the plain one elsewhere."""
    return interactive.render(incident, _style(), str(_plain(incident))) or render(incident)


def render(incident: Incident) -> str:
    """The whole document, plain."""
    return f"<!doctype html>\n{_document(incident)}\n"


def _document(incident: Incident) -> Html:
    title = f"{incident.job.name or incident.job.id or 'job'}: {words.headline(incident)}"
    return tag("html", tag("head", *head(title)), tag("body", _plain(incident)), lang="en")


def _plain(incident: Incident) -> Html:
    """Everything, without script."""
    return join((_header(incident), tag("main", *_parts(incident)), _footer(incident)))


def _parts(incident: Incident) -> tuple[Html, ...]:
    return (
        verdict.banner(incident),
        section("Ranks", ranks.grid(incident), ranks.table_of(incident)),
        section("Who waits for whom", ranks.waits(incident)),
        section("Ranks' diff", histories.diff(incident), hint="recorded calls by iteration, aligned by call path"),
        section("Stacks", stacks.tree(incident), hint="of the main threads, merged; outermost first"),
        section("Collectives", collectives.groups(incident), collectives.lined_up(incident)),
        section("Exceptions and last output", ranks.outputs(incident)),
        section("Data loaders", machine.loaders(incident), machine.workers(incident)),
        section("Processes", machine.processes(incident)),
        section("Nodes and GPUs", machine.nodes(incident), machine.gpus(incident), machine.gpu_memory(incident)),
        section("Health before it", health.findings(incident), health.nodes(incident), health.ranks(incident)),
        section("Warnings", verdict.warnings(incident)),
        section("All threads", stacks.by_rank(incident)),
        section("How the evidence was taken", machine.notes(incident)),
    )


def head(title: str) -> tuple[Html, ...]:
    """The head of a page of ours: its style, and that nothing else is loaded."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="referrer" content="no-referrer">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        Html(f"<style>{_style()}</style>"),
    )


def _header(incident: Incident) -> Html:
    job = incident.job
    size = f"{job.world_size} ranks" if job.world_size else None
    facts = [fact for fact in (size, job.launcher, moment(incident.opened_at)) if fact]
    return tag(
        "header",
        tag("span", "hangwatch", class_="brand"),
        tag("b", job.name or job.id),
        tag("span", " · ".join(facts)),
    )


def _footer(incident: Incident) -> Html:
    version = f" {incident.hangwatch_version}" if incident.hangwatch_version else ""
    return tag(
        "footer",
        f"Incident {incident.id}, written by hangwatch{version}. The JSON file of the same name beside this one holds ",
        "everything. ",
        tag("code", "hangwatch report FILE.json"),
        " prints the verdict again, ",
        tag("code", "--speedscope OUT.json"),
        " writes the stacks for speedscope, ",
        tag("code", "hangwatch analyze FILES..."),
        " judges the files of several nodes together.",
    )


def moment(at: float) -> str:
    """20 November 2026, 19:30:03 UTC"""
    try:
        then = time.gmtime(at)
    except (OverflowError, OSError, ValueError):  # no year that a calendar has
        return ""
    return f"{then.tm_mday} {time.strftime('%B %Y, %H:%M:%S UTC', then)}"


@cache
def _style() -> str:
    return resources.files(__name__).joinpath("style.css").read_text(encoding="utf-8")
