"""Several nodes without a dashboard that share a report directory: their evidence is judged together, and once.

A node that needs a verdict and has not seen all ranks asks the others through the report directory (`shared_folder`),
waits a short time, merges what has come as `hangwatch analyze` does, judges it, and writes the one incident. The nodes
that were asked point to that. Where no node answers, because the directory is not shared or the others are gone, the
node judges alone, says of which ranks it knows nothing, and blames no rank unless what it knows is proof.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from hangwatch import words
from hangwatch.judge import comparison as certainty
from hangwatch.judge import diagnose
from hangwatch.model import (
    CaptureNote,
    Certainty,
    Identity,
    Incident,
    Job,
    Judgement,
    Launched,
    RankEvidence,
    Snapshot,
    Status,
    every_rank,
)
from hangwatch.report import files
from hangwatch.report.incident import incident, new_id, snapshot_of
from hangwatch.version import __version__
from hangwatch_agent.peers.shared_folder import Outcome, Question, SharedFolder
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.shared.deadline import DeadlineError, within
from hangwatch_agent.shared.job_identity import is_loopback

ANSWER_S = 5.0  # for the others to answer
ENDING_S = 2.0  # the same where the job is coming down
ABANDONED_S = 12.0  # seconds; the node that asked an older question is gone
READ_S = 20.0  # for reading what has come: a thousand nodes want a dashboard
FOLDER_S = 10.0  # for one thing in the folder: a network file system that hangs must not hold up the watch
PAUSE_S = 0.25
SELDOM_S = 4.0  # between two looks while the ranks move
REST_S = 60.0  # after trouble with the folder
SLACK_S = 5.0  # ranks move a little when they are ended
SHARED = (Status.HUNG, Status.FAILED)  # what a node should not say alone; lingering concerns one node only

T = TypeVar("T")
Judge = Callable[[Snapshot], Judgement]
Nap = Callable[[float], bool]
"""Sleeps so many seconds; True when there is no time left for waiting."""


@dataclass(frozen=True)
class Present:
    """This node's ranks: their pids, for how long nothing has moved, and how old the youngest process is."""

    pids: dict[int, int]
    still_s: float
    age_s: float


@dataclass(frozen=True)
class Opinion:
    """A judgement and its evidence. `question` is the one that this node has led, 0 for none: `told` closes it."""

    judgement: Judgement
    snapshot: Snapshot
    question: int = 0


@dataclass(frozen=True)
class Ruling:
    """An incident that another node has judged with the evidence of all, and the file for a person to open."""

    incident: Incident
    path: str
    node: str


class Peers:
    """The other nodes of the job, as far as they share the report directory. No method raises or waits for long.

    Args:
        report_dir: where incidents are written.
        node: this node's name, unique to this watchdog.
        say: takes a line for the terminal when the directory cannot be used.
        clock: gives seconds since 1970.
        judge: the diagnosis.
    """

    def __init__(
        self,
        report_dir: str,
        node: str,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = steady_clock.time,
        judge: Judge = diagnose,
    ) -> None:
        self.report_dir, self.node = Path(report_dir), node
        self._say, self._clock, self._judge = say, clock, judge
        self._shared: SharedFolder | None = None
        self._answered = self._ruled = (0, "")
        self._resting_until = self._look_at = 0.0
        self._stuck = self._complained = False

    def heard(self, job: Job, present: Present, *, still: bool) -> Question | Ruling | None:
        """A question that waits for this node's evidence, or what another node has judged since. One call a poll.

        While the ranks move the folder is looked at only if it is there: a job that trains leaves no trace.
        """
        if self._resting:
            return None
        try:
            meeting = self._meet(job)
            if not still:
                if time.monotonic() < self._look_at:
                    return None
                self._look_at = time.monotonic() + SELDOM_S
                if not self._bounded(meeting.path.is_dir):
                    return None
            question = self._bounded(meeting.look)
            if question is None or question.node in ("", meeting.node):
                return None
            this = (question.number, question.node)
            if _is_open(question, meeting) and this != self._answered:
                return question
            if question.outcome is not None and this != self._ruled:
                self._ruled = this
                return self._ruling(question, job, present)
        except OSError as error:
            self._complain(error)
        return None

    def answer(self, question: Question, job: Job, judgement: Judgement, snapshot: Snapshot) -> None:
        """Gives this node's evidence to the node that has asked for it."""
        self._answered = (question.number, question.node)
        try:
            self._give(self._meet(job), question.number, self._report(judgement, snapshot, job))
        except OSError as error:
            self._complain(error)

    def together(
        self, job: Job, judgement: Judgement, snapshot: Snapshot, present: Present, *, ending: bool, nap: Nap
    ) -> Opinion | Ruling:
        """The judgement of what all nodes know, or the incident of the node that has judged it already.

        Takes ANSWER_S, and ABANDONED_S more where another node has asked before and does not come back; ENDING_S with
        `ending`. What this node judges alone comes back with what is missing said.
        """
        alone = self._careful(judgement, snapshot)
        if self._resting:
            return alone
        try:
            return self._talk(job, alone, self._report(judgement, snapshot, job), present, ending, nap) or alone
        except OSError as error:
            self._complain(error)
            return alone

    def told(self, question: int, opened: Incident | None) -> None:
        """Closes the question that this node has led, with the incident that came of it."""
        meeting = self._shared
        if meeting is None or self._resting:
            return
        outcome = Outcome(meeting.node, f"{files.name(opened)}.json" if opened is not None else "")
        try:
            self._bounded(lambda: meeting.close(question, outcome))
        except OSError as error:
            self._complain(error)

    def leave(self, *, tidy: bool) -> None:
        """This node's part of the job is over. With `tidy` nothing of it is worth keeping."""
        meeting = self._shared
        if meeting is not None and not self._resting:
            try:
                self._bounded(lambda: meeting.leave(tidy=tidy))
            except OSError as error:
                self._complain(error)

    # ------------------------------------------------------------ asking

    def _talk(
        self, job: Job, alone: Opinion, own: Incident, present: Present, ending: bool, nap: Nap
    ) -> Opinion | Ruling | None:
        """None where this node is to judge alone, or has nothing to ask."""
        meeting, urgent = self._meet(job), alone.judgement.status in SHARED
        until = time.monotonic() + (ENDING_S if ending else ABANDONED_S + PAUSE_S)
        while True:
            question = self._bounded(meeting.look)
            ruling = self._ruling(question, job, present) if question is not None else None
            if ruling is not None and not certainty.surer(alone.judgement.verdict, ruling.incident.verdict):
                return ruling
            if question is None or not _is_open(question, meeting):
                if not urgent and question is not None and question.age_s < present.still_s / 2:
                    return None  # another node has asked during this silence already, without a result
                number = question.number + 1 if question is not None else 1
                if self._bounded(lambda number=number: meeting.ask(number)):  # type: ignore[misc]
                    return self._lead(meeting, number, own, ENDING_S if ending else ANSWER_S, nap)
                continue
            if (this := (question.number, question.node)) != self._answered:
                self._answered = this
                self._give(meeting, question.number, own)
            if not urgent or time.monotonic() > until or nap(PAUSE_S):
                return None

    def _lead(self, meeting: SharedFolder, number: int, own: Incident, most_s: float, nap: Nap) -> Opinion:
        """Waits for the answers to our question, and judges them."""
        parts: dict[str, Incident | None] = {}
        until = time.monotonic() + most_s
        while True:
            question = self._bounded(meeting.look)
            for node in question.parts if question is not None and question.number == number else ():
                if node not in parts and node != meeting.node and time.monotonic() < until + READ_S:
                    parts[node] = self._bounded(lambda node=node: meeting.take(number, node))  # type: ignore[misc]
            usable = [own, *(part for part in parts.values() if part is not None and part.job.id == own.job.id)]
            merged = snapshot_of(usable)
            if not missing(merged) or time.monotonic() >= until or nap(PAUSE_S):
                return replace(self._careful(self._judge(merged), merged), question=number)

    def _give(self, meeting: SharedFolder, number: int, own: Incident) -> None:
        self._bounded(lambda: meeting.give(number, replace(own, updated_at=self._clock())))

    def _report(self, judgement: Judgement, snapshot: Snapshot, job: Job) -> Incident:
        """This node's evidence as it travels: a report like any other, but for the tree, which is made anew."""
        known = replace(snapshot, job=replace(snapshot.job, id=job.id))
        made = incident(judgement, known, id=new_id(), opened_at=self._clock(), hangwatch_version=__version__)
        return replace(made, stack_tree=())

    # ------------------------------------------------------------ what others have judged

    def _ruling(self, question: Question, job: Job, present: Present) -> Ruling | None:
        """What another node has judged, if it is about the silence in which this node's ranks stand."""
        outcome = question.outcome
        if outcome is None or not outcome.file or outcome.node == self._meet(job).node:
            return None
        # Durations, not times of day: the clocks of nodes differ.
        if question.outcome_age_s > min(present.still_s + SLACK_S, present.age_s):
            return None  # of an earlier hang, or of an earlier run of the job
        path = self.report_dir / Path(outcome.file).name
        try:
            found = self._bounded(lambda: files.read(path))
        except files.ReportError:
            return None
        strangers = [rank for rank in found.ranks if rank.pid != present.pids.get(rank.rank, rank.pid)]
        if found.job.id != job.id or any(rank.pid is not None for rank in strangers):
            return None
        page = path.with_suffix(".html")
        return Ruling(found, str(page if self._bounded(page.exists) else path), outcome.node)

    # ------------------------------------------------------------ judging alone

    def _careful(self, judgement: Judgement, snapshot: Snapshot) -> Opinion:
        """The judgement as far as it holds whatever the ranks do of which there is no evidence."""
        unknown = missing(snapshot)
        if not unknown or judgement.status not in SHARED:
            return Opinion(judgement, snapshot)
        who = words.ranks(unknown)
        note = CaptureNote("other nodes", False, f"nothing of {who} came to {self.report_dir}")
        noted = replace(snapshot, notes=(*snapshot.notes, note))
        doubted = self._judge(replace(noted, ranks=(*noted.ranks, *(RankEvidence(rank) for rank in unknown))))
        if doubted.verdict.certainty is Certainty.PROVEN:
            return Opinion(judgement if doubted.verdict.cause == judgement.verdict.cause else doubted, noted)
        proof = doubted.verdict if doubted.verdict.hang is Certainty.PROVEN else judgement.verdict
        verdict = judgement.verdict
        doubt = f"Nothing is known of {who}, which may be on other nodes, so no rank is blamed."
        verdict = replace(
            verdict,
            certainty=certainty.least(verdict.certainty, Certainty.LIKELY) or Certainty.UNDETERMINED,
            hang=proof.hang if proof is doubted.verdict else certainty.least(proof.hang, Certainty.LIKELY),
            argument=proof.argument,
            culprits=(),
            details=(doubt, *verdict.details),
        )
        return Opinion(replace(judgement, verdict=verdict), noted)

    # ------------------------------------------------------------ the folder

    def _meet(self, job: Job) -> SharedFolder:
        path = self.report_dir / f"nodes-{re.sub(r'[^A-Za-z0-9._-]+', '_', job.id)[:100]}"
        if self._shared is None or self._shared.path != path:
            self._shared = SharedFolder(path, self.node, clock=self._clock)
        return self._shared

    @property
    def _resting(self) -> bool:
        return self._stuck or time.monotonic() < self._resting_until

    def _complain(self, error: OSError) -> None:
        self._resting_until = time.monotonic() + REST_S
        if not self._complained:
            self._complained = True
            reason = (error.strerror or str(error)).lower()
            self._say(f"hangwatch: {self.report_dir}: {reason}; this node's verdicts are without the other nodes")

    def _bounded(self, work: Callable[[], T]) -> T:
        """Does something in the folder in a thread of its own. Raises what it raises, and TimeoutError."""
        try:
            return within(FOLDER_S, work, "hangwatch-folder")
        except DeadlineError:
            self._stuck = True  # and so may be the next thread
            raise


def missing(evidence: Snapshot) -> list[int]:
    """The ranks of the job of which there is no trace."""
    seen = {rank.rank for rank in evidence.ranks} | {each.rank for each in evidence.launched}
    return [rank for rank in every_rank(evidence.job.world_size) if rank not in seen]


def present(rank_states: Sequence[RankState], now: float) -> Present:
    """What this node's ranks are like at the moment `now`, in seconds since 1970."""
    return Present(
        pids={each.rank: each.pid for each in rank_states if each.rank is not None},
        still_s=max(0.0, now - max((each.moved_at for each in rank_states), default=now)),
        age_s=now - max((each.reading.identity.started_at for each in rank_states), default=now),
    )


def elsewhere(rank_states: Sequence[RankState], launched: Iterable[Launched], world_size: int | None) -> bool:
    """Whether the job has ranks on other nodes, as far as its ranks here know."""
    here = {each.rank for each in rank_states} | {each.rank for each in launched}
    if not rank_states or world_size is None or len(here - {None}) >= world_size:
        return False
    return not any(_all_here(each.reading.identity) for each in rank_states)


def _all_here(rank: Identity) -> bool:
    """A launcher that says how many ranks it starts here is believed; else a master on loopback has no other node."""
    local = rank.environment.get("LOCAL_WORLD_SIZE", "")
    if local.isdigit():
        return int(local) >= (rank.world_size or 0)
    return is_loopback(rank.environment.get("MASTER_ADDR", ""))


def _is_open(question: Question, meeting: SharedFolder) -> bool:
    """Another node waits for answers to it."""
    return question.outcome is None and question.age_s < ABANDONED_S and question.node != meeting.node
