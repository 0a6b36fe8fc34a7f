"""`hangwatch doctor loader train.py:make_loader`: walk a DataLoader before a job does."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from hangwatch.commands.doctor_display import table
from hangwatch.commands.report import put
from hangwatch.doctor import loader
from hangwatch.doctor.loader import LoaderReport, Walk
from hangwatch.errors import HangwatchError
from hangwatch.report.words import clean
from hangwatch.wire import codec


def run(target: str, arguments: argparse.Namespace) -> int:
    if arguments.html:
        raise HangwatchError("a loader's result has no page; use --json")
    seconds = arguments.seconds or loader.SECONDS
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn(f"of about {seconds:.0f} s"),
    )
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("walking the loader", total=4)
        report = loader.run(
            target,
            ranks=arguments.ranks,
            workers=arguments.workers,
            batches=arguments.batches,
            seconds=seconds,
            progress=lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
        )
    if arguments.json:
        put(arguments.json, codec.dumps(report, indent=1) + "\n")
    if arguments.json != "-":
        show(report)
    return 1 if report.worst == "fail" else 0


def show(report: LoaderReport) -> None:
    """The walks as a table, then the checks."""
    console = Console(highlight=False)
    console.print(Text(f"{clean(report.target)}, walked for {report.took_s:.0f} s\n", style="bold"))
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("rank", "workers", "len", "batches", "first", "usual", "slowest", "batches/s", "memory", "files"):
        shown.add_column(title, justify="right")
    for walk in report.walks:
        if walk.epochs and walk.purpose != "again":
            shown.add_row(*_row(walk))
    if shown.rows:
        console.print(shown)
        console.print()
    console.print(table((each.state, each.name, each.found, each.advice, each.details) for each in report.checks))


def _row(walk: Walk) -> tuple[str, ...]:
    epoch = walk.epochs[-1]
    return (
        str(walk.rank),
        str(walk.workers),
        "-" if walk.length is None else str(walk.length),
        f"{epoch.drawn}{'' if epoch.ended else '+'}",
        f"{epoch.first_s:.2f} s",
        f"{epoch.usual_s * 1000:.1f} ms",
        f"{epoch.slowest_s * 1000:.1f} ms",
        f"{walk.rate:,.1f}",
        f"{epoch.memory >> 20} MiB",
        str(epoch.descriptors),
    )
