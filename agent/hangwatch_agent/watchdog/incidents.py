"""The incidents of one job: opened, sharpened by better evidence, closed when movement resumes; and their reports."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TextIO

from hangwatch.judge import comparison as certainty
from hangwatch.model import Certainty, Incident, Judgement, Snapshot, Status, Verdict
from hangwatch.report import files, terminal, words
from hangwatch.report.incident import incident, new_id, recovered
from hangwatch.version import __version__
from hangwatch_agent.shared import steady_clock

WORTH_AN_INCIDENT = (Status.HUNG, Status.LINGERING, Status.FAILED)


class Incidents:
    """Holds the open incident and writes it. Nothing here raises for a full disk or a closed terminal.

    `told` is called with every version of an incident that was written: the link passes it on to the dashboard.
    """

    def __init__(
        self,
        report_dir: str,
        stream: TextIO,
        *,
        told: Callable[[Incident], None] = lambda incident: None,
        clock: Callable[[], float] = steady_clock.time,
    ) -> None:
        self.report_dir = report_dir
        self.open: Incident | None = None
        self.closed: list[Incident] = []
        self._stream = stream
        self.told = told
        self._clock = clock
        self._noticed: set[str] = set()
        self._adopted = ""  # the id of an incident that another node keeps
        self._settled = ""  # the id of an incident whose ranks have been ended
        self._complained = False

    @property
    def is_any(self) -> bool:
        """Whether there is an incident, open or closed."""
        return self.open is not None or bool(self.closed)

    def judged(self, judgement: Judgement, snapshot: Snapshot) -> None:
        """Take note of a judgement: open an incident, or make the open one better."""
        if judgement.status not in WORTH_AN_INCIDENT:
            return
        if self.open is None:
            self._open(judgement, snapshot)
        elif self.open.id != self._settled and _better(judgement, self.open) and not _poorer(snapshot, self.open):
            self._sharpen(self.open, _sharpened(self.open, judgement), snapshot)

    def settle(self) -> None:
        """The open incident is not judged again: its ranks are about to be ended, and that is not what had hung."""
        self._settled = self.open.id if self.open is not None else ""

    def adopt(self, found: Incident, path: str, node: str) -> bool:
        """Take over an incident that another node has judged with the evidence of all, and will keep.

        False where what is known here is as good.
        """
        if self.open is not None and (
            self.open.id == found.id or not certainty.surer(found.verdict, self.open.verdict)
        ):
            return False
        self.open, self._adopted = found, found.id
        said = words.clean(found.verdict.summary or words.NO_VERDICT)
        self.say(f"hangwatch: {words.headline(found)}: {said}")
        self.say(f"hangwatch: judged by {words.clean(node)} with the evidence of all nodes; report {path}")
        return True

    def enrich(self, judgement: Judgement, snapshot: Snapshot) -> None:
        """Write the open incident again with more evidence for the same judgement. Nothing is printed."""
        if self.open is not None and self.open.id != self._adopted:
            self.open = self._again(self.open, judgement, snapshot)
            self._write(self.open)

    def moved_on(self) -> None:
        """Close the open incident as recovered."""
        if self.open is None:
            return
        now = self._clock()
        ended = recovered(self.open, now)
        self.open = None
        self.closed.append(ended)
        where = "" if ended.id == self._adopted else f" ({self._write(ended)})"  # else its keeper rewrites it
        self.say(f"hangwatch: RECOVERED: the job moves again, {max(0.0, now - ended.opened_at):.0f} s later{where}")

    def file_away(self) -> None:
        """Close the open incident as it stands."""
        if self.open is not None:
            self.closed.append(self.open)
            self.open = None

    def say(self, line: str) -> None:
        """Print one line on the terminal, which may be closed."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line.rstrip("\n") + "\n")
            self._stream.flush()

    def say_once(self, key: str, line: str) -> None:
        """Print a line unless one with this key has been printed."""
        if key not in self._noticed:
            self._noticed.add(key)
            self.say(line)

    def _open(self, judgement: Judgement, snapshot: Snapshot) -> None:
        self.open = incident(judgement, snapshot, id=new_id(), opened_at=self._clock(), hangwatch_version=__version__)
        self._publish(self.open)

    def _sharpen(self, known: Incident, judgement: Judgement, snapshot: Snapshot) -> None:
        self._adopted = ""
        self.open = self._again(known, judgement, snapshot)
        if _says_something_else(known.verdict, judgement.verdict) or known.status != judgement.status:
            self._publish(self.open)
        else:
            self._write(self.open)

    def _again(self, known: Incident, judgement: Judgement, snapshot: Snapshot) -> Incident:
        return incident(
            judgement,
            snapshot,
            id=known.id,
            opened_at=known.opened_at,
            detected_after_s=known.detected_after_s,
            updated_at=self._clock(),
            hangwatch_version=known.hangwatch_version,
        )

    def _publish(self, found: Incident) -> None:
        path = self._write(found)
        with contextlib.suppress(OSError, ValueError):  # the terminal may be closed
            terminal.show(found, self._stream, report=path)

    def _write(self, found: Incident) -> str:
        written = files.write(found, self.report_dir)
        if written.error is not None and not self._complained:
            self._complained = True
            self.say(f"hangwatch: {written.error}")
        self.told(found)
        return str(written.best) if written.best else f"not written: {written.error}"


def _better(judgement: Judgement, known: Incident) -> bool:
    """Whether a new judgement should replace the one that stands: surer, or the job has failed since.

    A failed job is looked at again while its ranks go down; only a surer verdict may rewrite what the first look saw,
    because the first look had more of them alive.
    """
    if judgement.status is Status.FAILED and known.status is not Status.FAILED:
        # The ranks that hung have been ended: how they died is not why they hung.
        unknown = known.verdict.certainty is Certainty.UNDETERMINED
        settled = judgement.verdict.cause != "rank-died" or judgement.verdict.certainty is Certainty.PROVEN
        return unknown and settled and certainty.cause_is_surer(judgement.verdict, known.verdict)
    return certainty.surer(judgement.verdict, known.verdict)


def _sharpened(known: Incident, new: Judgement) -> Judgement:
    """The new judgement; what was known better before stays."""
    if new.status is Status.FAILED:
        return new
    verdict = certainty.sharpened(known.verdict, new.verdict)
    if verdict.cause == new.verdict.cause:
        return replace(new, verdict=verdict)
    return Judgement(known.status, known.stage, verdict)


def _poorer(snapshot: Snapshot, known: Incident) -> bool:
    """Whether it covers fewer ranks than the incident: a node's own look must not replace that of all nodes."""
    return len({rank.rank for rank in snapshot.ranks}) < len({rank.rank for rank in known.ranks})


def _says_something_else(before: Verdict, after: Verdict) -> bool:
    return (before.cause, before.culprits, before.certainty, before.hang) != (
        after.cause,
        after.culprits,
        after.certainty,
        after.hang,
    )
