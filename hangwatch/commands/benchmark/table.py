"""The results as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from hangwatch.commands.benchmark import score
from hangwatch.commands.benchmark.results import Control, Figure, Machine, PeerRun, Results, Run
from hangwatch.report import words


def show(results: Results, console: Console | None = None) -> None:
    """Print every part that was measured."""
    console = console or Console()
    for part, machine in results.machines.items():
        console.print(f"\n[bold]{part}[/bold]  {about(machine)}", highlight=False)
        if part == "accuracy":
            _accuracy(results.runs, results.controls, results.skipped, console)
        elif part == "peers":
            _peers(results.peers, console)
        else:
            _figures(results.figures, console)


def about(machine: Machine) -> str:
    """Where and when, in one line."""
    return (
        f"{machine.date}, hangwatch {machine.hangwatch}, torch {machine.torch}, Python {machine.python}, "
        f"{machine.cores} cores with a load of {machine.load:g} before, {machine.system}"
    )


HEADINGS = (
    "cause", "runs", "detected after", "worst", "cause right", "culprit right", "wrong culprit", "hang", "cause is",
)  # fmt: skip


def accuracy_rows(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """One row of text a cause, and one for all."""
    rows = [*score.rows(runs), score.row("all", runs)]
    return [
        (
            row.cause,
            str(row.runs),
            seconds(row.median_s),
            seconds(row.worst_s),
            f"{row.cause_right}/{row.runs}",
            f"{row.culprit_right}/{row.runs}",
            str(row.wrong_culprit),
            _counts(row.hangs),
            _counts(row.certainties),
        )
        for row in rows
    ]


def _counts(counted: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counted.items()))


def summary(runs: Sequence[Run], controls: Sequence[Control]) -> list[str]:
    """The sentences below the table."""
    right = sum(run.cause_right and run.culprit_right for run in runs)
    wrong = sum(run.wrong_culprit for run in runs)
    rate = share(right, len(runs))
    lines = [f"Cause and culprit right in {right} of {len(runs)} runs ({rate}); a wrong culprit in {wrong}."]
    if times := score.proven(runs):
        median, worst = times[len(times) // 2], times[-1]
        lines.append(f"Hang proven in {len(times)} runs, after {median:.1f} s (median), {worst:.1f} s (worst).")
    if runs:
        lines.append(f"Cause proven in {sum(run.certainty == 'proven' for run in runs)} runs.")
    if controls:
        alarms, hours, an_hour = score.alarms_per_hour(controls)
        healthy = f"{len(controls)} healthy runs, {hours * 60:.0f} minutes"
        lines.append(f"Controls: {healthy}, {alarms} false alarms ({an_hour:.1f} an hour).")
    return lines


def misses(runs: Sequence[Run], controls: Sequence[Control]) -> list[str]:
    """What was not as it should be, run by run."""
    found = [
        f"{run.case} (at fault: {ranks(run.blame)}): " + _instead(run)
        for run in runs
        if not (run.cause_right and run.culprit_right)
    ]
    return found + [f"{each.case}, healthy: {each.alarm}" for each in controls if each.alarm]


def _instead(run: Run) -> str:
    if not run.status:
        return "nothing was said" if run.wants_verdict else "no warning"
    return f"{said(run)}: {run.cause}, {ranks(run.named)}"


def said(run: Run) -> str:
    """hung, proven, cause likely"""
    cause = f"cause {words.sure(run.cause, run.certainty)}"
    return ", ".join(filter(None, (run.status, run.hang, cause)))


def ranks(numbers: Sequence[int]) -> str:
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers)) if numbers else "no rank"


PEER_HEADINGS = ("cause", "peer", "says the rank", "what it said")


def peer_rows(runs: Sequence[PeerRun]) -> list[tuple[str, ...]]:
    """One row of text a cause and peer."""
    return [
        (cause, peer, f"{sum(run.says_the_rank for run in asked)}/{len(asked)}", asked[-1].said or "nothing")
        for cause, by_peer in score.peers(runs).items()
        for peer, asked in by_peer.items()
    ]


def peer_summary(runs: Sequence[PeerRun]) -> list[str]:
    lines = []
    for name in dict.fromkeys(run.peer for run in runs):
        asked = [run for run in runs if run.peer == name]
        lines.append(f"{name} says the rank in {sum(run.says_the_rank for run in asked)} of {len(asked)} runs.")
    return lines


FIGURE_HEADINGS = ("figure", "measured", "budget", "of the budget", "", "how")


def figure_rows(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    """One row of text a figure."""
    return [
        (
            figure.name,
            value(figure),
            f"{'>=' if figure.at_least else '<='} {figure.budget:g} {figure.unit}".rstrip(),
            "" if figure.share is None else f"{figure.share:.2f}",
            "held" if figure.held else "missed" if figure.value is not None else "not measured",
            figure.note,
        )
        for figure in figures
    ]


def value(figure: Figure) -> str:
    return "-" if figure.value is None else f"{figure.value:.3g} {figure.unit}".rstrip()


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _accuracy(runs: Sequence[Run], controls: Sequence[Control], skipped: dict[str, str], console: Console) -> None:
    _print(HEADINGS, accuracy_rows(runs), console)
    for line in (*summary(runs, controls), *(f"  {miss}" for miss in misses(runs, controls))):
        console.print(line, highlight=False, markup=False)
    for case, why in skipped.items():
        console.print(f"Not played: {case} ({why})", highlight=False)


def _peers(runs: Sequence[PeerRun], console: Console) -> None:
    _print(PEER_HEADINGS, peer_rows(runs), console)
    for line in peer_summary(runs):
        console.print(line, highlight=False)


def _figures(figures: Sequence[Figure], console: Console) -> None:
    _print(FIGURE_HEADINGS, figure_rows(figures), console)


def _print(headings: Sequence[str], rows: Sequence[tuple[str, ...]], console: Console) -> None:
    from rich.text import Text

    table = Table(*headings)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
