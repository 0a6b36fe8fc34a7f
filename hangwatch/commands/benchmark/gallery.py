"""Plays the gallery: faulty cases with the culprit moved from round to round, and their healthy look-alikes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hangwatch.commands.benchmark.results import Control, Run
from hangwatch.commands.trial import Trial
from hangwatch.gallery import Case, command, environment
from hangwatch.gallery.standin import library
from hangwatch.model import Certainty, Incident
from hangwatch.report import files

STALL_AFTER = 4.0  # --stall-after, so that causes without proof are told soon as well; look-alikes run as users run
SHARPENING = 8.0  # seconds that an undetermined verdict is given to become better
QUIET = 8.0  # seconds beyond patience for which a job that only waits must not be called hung


@dataclass(frozen=True)
class Play:
    """One thing to play: a case with its culprit, or its look-alike."""

    case: Case
    culprit: int | None
    healthy: bool = False

    @property
    def title(self) -> str:
        who = "healthy" if self.healthy else "" if self.culprit is None else f"rank {self.culprit}"
        return f"{self.case.name} {who}".rstrip()


def plan(cases: Sequence[Case], rounds: int, *, controls: bool) -> list[Play]:
    """Round by round, so that a run stopped early has seen every case; the culprit moves on by one rank a round."""
    plays: list[Play] = []
    for number in range(rounds):
        plays += [Play(case, _culprit(case, number)) for case in cases]
        if controls:
            plays += [Play(case, case.culprit, healthy=True) for case in _look_alikes(cases)]
    return plays


def _culprit(case: Case, number: int) -> int | None:
    return None if case.culprit is None else (case.culprit + number) % case.ranks


def _look_alikes(cases: Sequence[Case]) -> Iterator[Case]:
    """The cases whose healthy runs differ: several faults of one script may share a look-alike."""
    seen = set()
    for case in cases:
        key = (case.script, case.healthy_args, case.launcher, case.healthy_launch, case.ranks)
        if case.healthy_args and key not in seen:
            seen.add(key)
            yield case


def missing(case: Case) -> str:
    """What this machine lacks for a case, in words; "" if nothing."""
    if "root" in case.needs and os.geteuid() != 0:
        return "needs root"
    if {"namespaces", "iproute2"} & set(case.needs) and (os.geteuid() != 0 or shutil.which("ip") is None):
        return "needs root and iproute2"
    if case.backend == "nccl_standin" and library.compiler() is None:
        return "needs a C compiler"
    return ""


def play(what: Play, seconds: float) -> Run:
    """Play a faulty case until its verdict has come, or for `seconds`."""
    case = what.case
    with tempfile.TemporaryDirectory(prefix="hangwatch-bench-") as folder, _trial(what, Path(folder)) as trial:
        if case.status == "warned":
            _wait_for_warning(trial, Path(folder), seconds)
        first = trial.incident({"waiting": case.after + STALL_AFTER + QUIET, "warned": QUIET}.get(case.status, seconds))
        took = time.time() - trial.started
        final = _sharpened(trial, first)
        warned = _warned(Path(folder))
    return _run(what, first, final, took, warned=warned)


def _wait_for_warning(trial: Trial, folder: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and trial.exit_code is None and not _warned(folder):
        time.sleep(0.2)


def _warned(folder: Path) -> bool:
    return b"hangwatch: warning:" in (folder / "output").read_bytes()


def control(what: Play, seconds: float) -> Control:
    """Play a look-alike until it has finished, or for `seconds`."""
    with tempfile.TemporaryDirectory(prefix="hangwatch-bench-") as folder, _trial(what, Path(folder)) as trial:
        alarm = trial.incident(seconds)
        took = time.time() - trial.started
        finished = trial.exit_code is not None
    return Control(what.case.name, what.case.cause, took, alarm.verdict.cause if alarm else "", finished)


def _trial(what: Play, folder: Path) -> Trial:
    words = command(what.case, culprit=what.culprit, healthy=what.healthy)
    options = () if what.healthy else ("--stall-after", str(STALL_AFTER))
    with (folder / "output").open("wb") as output:
        settings = {**os.environ, **environment(what.case, folder / "boards")}
        return Trial(words, folder / "reports", options, output.fileno(), settings)


def _sharpened(trial: Trial, first: Incident | None) -> Incident | None:
    """The incident as it stands once it says more than "undetermined", or at the end of our patience."""
    found, deadline = first, time.monotonic() + SHARPENING
    while found and found.verdict.certainty == Certainty.UNDETERMINED and time.monotonic() < deadline:
        time.sleep(0.2)
        found = files.read(trial.reports()[0])
    return found


def _run(what: Play, first: Incident | None, final: Incident | None, took: float, *, warned: bool) -> Run:
    case = what.case
    blame = case.culprits(what.culprit or 0, case.ranks)
    expected = Run(case.name, case.cause, case.ranks, case.status, blame, case.process, seconds=took, warned=warned)
    if first is None or final is None:
        return expected
    return Run(
        **{name: getattr(expected, name) for name in ("case", "truth", "ranks", "expected", "blame", "process")},
        cause=final.verdict.cause,
        status=str(final.status),
        certainty=str(final.verdict.certainty),
        hang=str(final.verdict.hang or ""),
        named=_named(final),
        processes=tuple(sorted({culprit.process for culprit in final.verdict.culprits})),
        accused=tuple(sorted({*_named(first), *_named(final)})),
        detected_after_s=first.detected_after_s + max(0.0, final.updated_at - first.updated_at),
        seconds=took,
        warned=warned,
    )


def _named(incident: Incident) -> tuple[int, ...]:
    return tuple(sorted({*incident.verdict.blamed}))
