"""`hangwatch doctor`: what hangwatch needs on this machine, what of it is there, and how to get the rest."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hangwatch.commands.checks import Check

HELP = "check what hangwatch needs on this machine"
SIGNS = {"ok": "✓", "degraded": "!", "missing": "✗", "unused": "–"}
STYLES = {"ok": "green", "degraded": "yellow", "missing": "bold red", "unused": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report-dir", metavar="DIR", help="the report directory to check (hangwatch-reports)")
    parser.add_argument("--dashboard", metavar="URL", help="the dashboard to reach, where there is one")


def run(arguments: argparse.Namespace) -> int:
    from hangwatch.commands import checks
    from hangwatch.settings import Settings

    settings = Settings.load(report_dir=arguments.report_dir, dashboard=arguments.dashboard)
    found = list(checks.all_of_them(settings))
    _print(found)
    return 1 if any(check.state == "missing" for check in found) else 0


def _print(found: Iterable[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from hangwatch.report.words import clean

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in found:
        said = Text(clean(check.found))
        if check.advice:
            said.append(f"\n{clean(check.advice)}", style="bold")
        table.add_row(Text(SIGNS[check.state], style=STYLES[check.state]), check.name, said)
    console = Console(highlight=False)
    console.print(table)
    lacking = [check for check in found if check.state == "missing"]
    worse = [check for check in found if check.state == "degraded"]
    console.print(Text(_summary(len(lacking), len(worse))))


def _summary(lacking: int, worse: int) -> str:
    if lacking:
        return f"\n{lacking} thing{'s' if lacking > 1 else ''} that hangwatch cannot do without; see ✗ above"
    if worse:
        return f"\nhangwatch works here, with less to show; see ! above ({worse})"
    return "\nhangwatch has all that it can use here"
