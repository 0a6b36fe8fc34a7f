"""The run of a benchmark: its parts one after another under a progress bar. Ctrl-C keeps what has been measured."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hangwatch.commands.benchmark import gallery, peers, table
from hangwatch.commands.benchmark.gallery import Play
from hangwatch.commands.benchmark.results import Control, Figure, Machine, PeerRun, Results, Run
from hangwatch.commands.did_you_mean import did_you_mean
from hangwatch.errors import HangwatchError
from hangwatch.gallery import CASES, Case

T = TypeVar("T")
COLUMNS = (
    TextColumn("{task.description:34}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
)


class _TimeIsOutError(Exception):
    """The minutes that were asked for are over."""


@dataclass(frozen=True)
class Plan:
    """What to measure.

    `seconds` is the longest wait for one verdict, `minutes` the longest run of all. `keep` is called after everything
    that was measured: a run that is killed after an hour was not for nothing.
    """

    parts: Sequence[str]
    cases: Sequence[Case]
    rounds: int
    controls: bool
    seconds: float
    minutes: float | None = None
    keep: Callable[[Results], None] = lambda results: None


def chosen(causes: Sequence[str]) -> list[Case]:
    """The cases of these causes, or all."""
    known = {case.cause for case in CASES}
    if unknown := set(causes) - known:
        first, *others = sorted(unknown)
        meant = did_you_mean(first, known)
        raise HangwatchError(f"no script for {', '.join([first, *others])}; {meant}`hangwatch demo --list` names all")
    return [case for case in CASES if not causes or case.cause in causes]


def measure(plan: Plan) -> tuple[Results, bool]:
    """Everything that was measured, and whether it was cut short by Ctrl-C."""
    if importlib.util.find_spec("torch") is None:
        raise HangwatchError("the benchmark trains models: install torch in this environment first (pip install torch)")
    results = Results()
    console = Console(stderr=True)
    with Progress(*COLUMNS, console=console) as progress:
        bench = _Bench(plan, results, progress)
        try:
            for part in plan.parts:
                results.machines[part] = Machine.here()
                getattr(bench, part)()
        except _TimeIsOutError:
            console.print("hangwatch bench: the time is over; this is what was measured until now")
        except KeyboardInterrupt:
            console.print("hangwatch bench: interrupted; this is what was measured until now")
            return results, True
    return results, False


class _Bench:
    """The parts; each is a method of its name."""

    def __init__(self, plan: Plan, results: Results, progress: Progress) -> None:
        self.plan, self.results, self.progress = plan, results, progress
        self.deadline = time.monotonic() + plan.minutes * 60 if plan.minutes else None
        self.cases = [case for case in plan.cases if not gallery.missing(case)]
        results.skipped |= {case.name: why for case in plan.cases if (why := gallery.missing(case))}

    def accuracy(self) -> None:
        plays = gallery.plan(self.cases, self.plan.rounds, controls=self.plan.controls)
        self._through("accuracy", plays, lambda what: what.title, self._play)

    def peers(self) -> None:
        plays = [(what, peer) for what in gallery.plan(self._one_a_cause(), 1, controls=False) for peer in peers.PEERS]
        self._through("peers", plays, lambda each: f"{each[0].case.name}: {each[1]}", self._ask)

    def figures(self) -> None:
        from hangwatch.commands.benchmark import figures

        self._through("figures", figures.parts(), figures.title, self._figure)

    def _play(self, what: Play) -> str:
        if what.healthy:
            control = gallery.control(what, self.plan.seconds)
            self.results.controls.append(control)
            return control_line(control)
        run = gallery.play(what, self.plan.seconds)
        self.results.runs.append(run)
        return run_line(run)

    def _ask(self, asked: tuple[Play, str]) -> str:
        what, peer = asked
        answer = peers.ask(what, peer, self._time_of(what.case))
        self.results.peers.append(answer)
        return peer_line(answer)

    def _figure(self, measured: Callable[[], list[Figure]]) -> str:
        from hangwatch.commands.benchmark import figures, table

        found = figures.guarded(measured)
        self.results.figures += found
        return "; ".join(f"{figure.name}: {table.value(figure)}" for figure in found)

    def _one_a_cause(self) -> list[Case]:
        return list({case.cause: case for case in reversed(self.cases)}.values())[::-1]

    def _time_of(self, case: Case) -> float:
        """As long as hangwatch took to its verdict, and long enough for the hang to come and be noticed."""
        taken = [run.seconds for run in self.results.runs if run.case == case.name and run.status]
        return max([case.after + gallery.STALL_AFTER + 5.0, *taken])

    def _through(self, part: str, items: Sequence[T], name: Callable[[T], str], do: Callable[[T], str]) -> None:
        task = self.progress.add_task(part, total=len(items))
        for item in items:
            if self.deadline is not None and time.monotonic() > self.deadline:
                raise _TimeIsOutError
            self.progress.update(task, description=f"{part}: {name(item)}"[:34])
            self.progress.console.print(escape(f"{name(item)}: {do(item)}"), highlight=False)
            self.progress.advance(task)
            self.plan.keep(self.results)


def run_line(run: Run) -> str:
    """What came of a run, for the terminal."""
    if not run.status:
        return "no verdict" if run.wants_verdict else "no verdict, as it should be" if run.cause_right else "no warning"
    who = f" ({words})" if (words := ", ".join(map(str, run.named))) else ""
    right = "right" if run.cause_right and run.culprit_right else "WRONG"
    return f"{right}: {table.said(run)}, {run.cause}{who}, after {run.detected_after_s or 0:.1f} s"


def control_line(control: Control) -> str:
    if control.alarm:
        return f"FALSE ALARM: {control.alarm}"
    return f"no alarm in {control.seconds:.0f} s" + ("" if control.finished else ", not finished")


def peer_line(answer: PeerRun) -> str:
    return ("says the rank" if answer.says_the_rank else "does not say the rank") + (
        f": {answer.said}" if answer.said else ""
    )
