"""Plays gallery cases under `hangwatch run`, for tests: the incident if there is one, and what was printed."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from hangwatch.commands.trial import Trial
from hangwatch.gallery import Case, command, environment
from hangwatch.model import Certainty, Incident, Status
from hangwatch.report import words
from hangwatch.settings import Settings

STALL_AFTER = 4.0  # seconds: patience where nothing can be proven
PATIENT = 60.0  # the same for jobs that do not hang: half of a user's default, for a busy machine stalls them too


@dataclass(frozen=True)
class Played:
    """What came of a case. `incident` is the first that was written; `exit_code` is None if the job had to be ended."""

    incident: Incident | None
    exit_code: int | None
    output: str
    pids: dict[int, int]

    @property
    def verdict(self) -> str:
        """Everything that the incident says, to be searched in."""
        assert self.incident is not None, f"no incident; the job printed:\n{self.output}"
        found = self.incident.verdict
        return "\n".join((found.summary, *found.details, *found.evidence, found.fix))


def play(
    case: Case,
    folder: Path,
    *,
    ranks: int | None = None,
    culprit: int | None = None,
    healthy: bool = False,
    seconds: float = 240.0,
    options: tuple[str, ...] = (),
    stall_after: float = STALL_AFTER,
    linger_after: float = Settings.linger_after,
) -> Played:
    """Run a case until its first incident, its end, or for `seconds`; then end it.

    An exit that naps in a loop is given six times `linger_after`.
    """
    given = command(case, ranks=ranks, culprit=culprit, healthy=healthy)
    settings = environment(case, folder / "boards") | {"HANGWATCH_LINGER_AFTER": str(linger_after)}
    return play_command(given, folder, seconds=seconds, options=options, stall_after=stall_after, environment=settings)


def play_command(
    command_line: list[str],
    folder: Path,
    *,
    seconds: float = 240.0,
    options: tuple[str, ...] = (),
    stall_after: float = STALL_AFTER,
    environment: dict[str, str] | None = None,
    attaches: bool = False,
) -> Played:
    """Run any command so; with `attaches`, without `hangwatch run` in front."""
    log, reports = folder / "output.txt", folder / "reports"
    settings = {"HANGWATCH_REPORT_DIR": str(reports), "HANGWATCH_STALL_AFTER": str(stall_after)} if attaches else {}
    given = ("--stall-after", str(stall_after), *options)
    with log.open("wb") as output:
        passed = {**os.environ, **settings, **(environment or {})}
        with Trial(command_line, reports, given, output.fileno(), passed, watched=not attaches) as trial:
            incident = trial.incident(seconds)
            if incident is not None and attaches:
                _until_told(log, incident)
                incident = _second_look(trial, incident)
                _until_told(log, incident)
            exit_code = trial.exit_code
    pids = {rank.rank: rank.pid for rank in incident.ranks if rank.pid} if incident else {}
    return Played(incident, exit_code, log.read_text(errors="replace"), pids)


def _until_told(log: Path, incident: Incident, seconds: float = 20.0) -> None:
    """A verdict is told after its report is written: a watchdog that is a thread of the job would be ended with it."""
    told = re.compile(rf"^hangwatch: [A-Z]{{4}}.*; {words.cause(incident.verdict)}", re.MULTILINE)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not told.search(log.read_text(errors="replace")):
        time.sleep(0.1)


def _second_look(trial: Trial, first: Incident, seconds: float = 8.0) -> Incident:
    """The incident once it is proven. A rank that was awake in the first look is looked at again after 1, 2 and 4 s."""
    deadline = time.monotonic() + seconds
    incident = first
    while incident.verdict.certainty is Certainty.LIKELY and time.monotonic() < deadline:
        time.sleep(0.2)
        incident = trial.incident(seconds) or incident
    return incident


def blamed(incident: Incident) -> list[int]:
    """The ranks among the culprits."""
    return sorted({culprit.rank for culprit in incident.verdict.culprits if culprit.rank is not None})


def assert_not_hung(played: Played) -> None:
    """A look-alike may end or go on working; it must not be called hung."""
    if played.incident is not None:
        assert played.incident.status not in (Status.HUNG, Status.LINGERING, Status.FAILED), played.verdict
    assert "HUNG" not in played.output
