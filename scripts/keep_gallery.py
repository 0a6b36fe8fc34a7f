"""Plays the gallery's hangs and keeps their evidence in tests/judged/: `python -m scripts.keep_gallery [CASE ...]`.

So a change of the diagnosis is held against all of them within seconds. What was kept of a case before is replaced, and
only by a verdict that is the case's own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hangwatch.commands.trial import Trial
from hangwatch.gallery import CASES, Case, command, environment
from hangwatch.model import Certainty, Incident
from scripts import judged

PATIENCE = "4"  # --stall-after, as in `hangwatch demo`
LONGEST = 240.0  # seconds until a case is given up
INCIDENTS = ("hung", "failed", "lingering")


def main(*arguments: str) -> str | None:
    """Returns which cases gave no verdict of their own, None if all did."""
    parser = argparse.ArgumentParser(
        description="play the gallery and keep its evidence among the reports of tests/judged/"
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all of them by default")
    parser.add_argument("--jobs", type=int, default=2, help="cases at once (2)")
    given = parser.parse_args(arguments)
    cases = [case for case in CASES if case.status in INCIDENTS and (not given.cases or case.name in given.cases)]
    missing = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for case, incident in zip(cases, pool.map(_played, cases), strict=True):
            right = incident is not None and _is_right(case, incident)
            print(f"{case.name}: {'kept' if right else 'no such verdict'}", flush=True)
            if incident is not None and right:
                _keep(case, incident)
            else:
                missing.append(case.name)
    return f"nothing kept of: {', '.join(missing)}" if missing else None


def _played(case: Case) -> Incident | None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {**os.environ, **environment(case, folder / "boards")}
        with (
            (folder / "output").open("wb") as output,
            Trial(command(case), folder / "reports", ("--stall-after", PATIENCE), output.fileno(), settings) as trial,
        ):
            return trial.incident(LONGEST)


def _is_right(case: Case, incident: Incident) -> bool:
    verdict, blamed = incident.verdict, _blamed(incident)
    named = blamed == case.culprits(case.culprit or 0, case.ranks)
    unnamed = not blamed and verdict.certainty is not Certainty.PROVEN
    return (verdict.cause, str(incident.status)) == (case.cause, case.status) and (named or unnamed)


def _blamed(incident: Incident) -> tuple[int, ...]:
    return tuple(sorted({*incident.verdict.blamed}))


def _keep(case: Case, incident: Incident) -> None:
    name = f"gallery-{case.name}"
    judged.drop(name)
    about = f"`hangwatch demo {case.name}`{f': {case.variant}' if case.variant else ''}"
    judged.keep(incident, judged.Truth(name, about, (case.cause,), _blamed(incident)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
