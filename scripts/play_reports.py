"""Plays the gallery and keeps what hangwatch said: `make reports` writes docs/reports/<cause>.txt.

The site shows each on the page of its cause. Causes are named as arguments; without one all of the gallery are played,
which takes about half an hour. A verdict that is not the case's own is not kept, and the script says so.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from hangwatch.commands.trial import Trial
from hangwatch.gallery import CASES, Case, command, environment
from hangwatch.model import Incident
from hangwatch.report import terminal
from scripts.cause_pages import shown

REPORTS = Path(__file__).parent.parent / "docs" / "reports"
PATIENCE = "4"  # --stall-after, as in `hangwatch demo`
LONGEST = 240.0  # seconds until a case is given up
WIDTH = 100


def main(*causes: str) -> str | None:
    REPORTS.mkdir(exist_ok=True)
    missing = []
    for cause in causes or dict.fromkeys(case.cause for case in CASES):
        case = shown(cause)
        said = case and _played(case)
        print(f"{cause}: {'kept' if said else 'no such verdict'}", flush=True)
        if said:
            (REPORTS / f"{cause}.txt").write_text(said, encoding="utf-8")
        else:
            missing.append(cause)
    return f"nothing kept of: {', '.join(missing)}" if missing else None


def _played(case: Case) -> str | None:
    """What the terminal shows of a case, None where that is another verdict than the case's own."""
    with tempfile.TemporaryDirectory() as name:
        folder, reports = Path(name), Path(name) / "hangwatch-reports"
        words, settings = command(case), environment(case, folder / "boards")
        with (
            (folder / "output").open("wb") as output,
            Trial(words, reports, ("--stall-after", PATIENCE), output.fileno(), {**os.environ, **settings}) as trial,
        ):
            incident = trial.incident(LONGEST)
        if case.status == "warned":
            return None if incident else _warnings(folder / "output")
        right = incident is not None and (incident.verdict.cause, str(incident.status)) == (case.cause, case.status)
        return _report(incident, trial.reports()[0]) if incident and right else None


def _report(incident: Incident, path: Path) -> str:
    return terminal.render(incident, report=f"hangwatch-reports/{path.with_suffix('.html').name}", width=WIDTH)


def _warnings(output: Path) -> str | None:
    """The warnings among what was printed, each once."""
    text = output.read_text(encoding="utf-8", errors="replace")
    lines = dict.fromkeys(re.findall(r"^hangwatch: warning: .*$", text, re.MULTILINE))
    return "\n".join([*lines, ""]) if lines else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
