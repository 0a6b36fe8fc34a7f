"""How `hangwatch doctor` shows what it finds on a terminal, and how far it has come."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from hangwatch.report.words import clean

if TYPE_CHECKING:
    from hangwatch import doctor
    from hangwatch.commands.checks import Check
    from hangwatch.doctor.model import Check as Found
    from hangwatch.doctor.model import RankFacts

SIGNS = {"ok": "✓", "degraded": "!", "missing": "✗", "unused": "–", "warn": "!", "fail": "✗", "skip": "–"}
STYLES = {"ok": "green", "degraded": "yellow", "missing": "bold red", "unused": "dim"}
STYLES |= {"warn": "yellow", "fail": "bold red", "skip": "dim"}
STAGES = 11  # of a rank's probe, without GPUs
MOST_DETAILS = 8


@contextmanager
def progress(seconds: float) -> Iterator[doctor.Progress]:
    """A bar on standard error, where that is a terminal."""
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn(f"of at most {seconds:.0f} s"),
    )
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("waiting for the ranks", total=None)

        def update(facts: Sequence[RankFacts]) -> None:
            if facts:
                total = STAGES * max(each.world_size for each in facts)
                done = sum(STAGES if each.complete else min(STAGES, len(each.stages)) for each in facts)
                bar.update(task, description=_words(facts), completed=done, total=total)

        yield update


def _words(facts: Sequence[RankFacts]) -> str:
    now = Counter("done" if each.complete else each.stages[-1].name if each.stages else "start" for each in facts)
    where = ", ".join(f"{name}: {count}" for name, count in now.items())
    return f"{len(facts)} of {max(each.world_size for each in facts)} ranks ({where})"


def show_ours(found: Iterable[Check]) -> None:
    """What hangwatch needs here."""
    found = list(found)
    console = Console(highlight=False)
    console.print(table((check.state, check.name, check.found, check.advice, ()) for check in found))
    console.print(Text(_summary_of_ours(found)))


def show(report: doctor.Report, ours: Sequence[Check]) -> None:
    """What hangwatch needs on this machine, in a line where all is well, then what the job needs."""
    console = Console(highlight=False)
    wanting = [check for check in ours if check.state not in ("ok", "unused")]
    console.print(Text("hangwatch", style="bold"))
    console.print(
        table((check.state, check.name, check.found, check.advice, ()) for check in wanting)
        if wanting
        else table([("ok", "itself", "has all that it can use on this machine", "", ())])
    )
    for family in dict.fromkeys(check.family for check in report.checks):
        console.print(Text(f"\n{family}", style="bold"))
        console.print(table(_row(check) for check in report.checks if check.family == family))
    console.print(Text(f"\n{summary(report)}"))


def _row(check: Found) -> tuple[str, str, str, str, Sequence[str]]:
    return check.state, check.name, check.found, check.advice, check.details


def table(rows: Iterable[tuple[str, str, str, str, Sequence[str]]]) -> Table:
    """A row for each check: its sign, its name, what was found and what to do."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for state, name, found, advice, details in rows:
        said = Text(clean(found))
        for detail in details[:MOST_DETAILS]:
            said.append(f"\n{clean(detail)}", style="dim")
        if advice:
            said.append(f"\n{clean(advice)}", style="bold")
        made.add_row(Text(SIGNS[state], style=STYLES[state]), clean(name), said)
    return made


def summary(report: doctor.Report) -> str:
    """The last line."""
    counts: Counter[str] = Counter(check.state for check in report.checks)
    ranks = len({each.rank for each in report.job.ranks})
    looked = f"{ranks} of {report.job.world_size} ranks in {report.took_s:.0f} s"
    if counts["fail"]:
        return f"{looked}: this job would fail or hang; see ✗ above ({counts['fail']}), and ! ({counts['warn']})"
    if counts["warn"]:
        return f"{looked}: nothing that keeps this job from running; see ! above ({counts['warn']})"
    return f"{looked}: nothing was found that would keep this job from running"


def _summary_of_ours(found: Sequence[Check]) -> str:
    lacking = sum(check.state == "missing" for check in found)
    worse = sum(check.state == "degraded" for check in found)
    if lacking:
        return f"\n{lacking} thing{'s' if lacking > 1 else ''} that hangwatch cannot do without; see ✗ above"
    if worse:
        return f"\nhangwatch works here, with less to show; see ! above ({worse})"
    return "\nhangwatch has all that it can use here"
