"""What follows a judgement on this node: the incident, its native frames, what the user wants done, and its end."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

from hangwatch.judge import worth_confirming
from hangwatch.model import Incident, Judgement, Launched, RankEvidence, Snapshot, Status
from hangwatch_agent.peers.peers import Ruling
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.watchdog.exit_words import aborted_at_exit
from hangwatch_agent.watchdog.incidents import Incidents

GROWTH = 2.0  # of patience after every incident that ended by itself
MOST_GROWTH = 8.0
MOVES_S = 3.0  # before it counts: hosts whose NCCL calls were aborted go on for a moment, to their end
STOPPED_S = 60.0  # what stopped a rank from outside, such as a scheduler, may let it go on: so long it is only reported
LEFT_BEHIND_S = 120.0  # without any movement: what a failed rank has left behind then waits for it for ever
MOST_NATIVE = 3  # culprits whose native frames are taken, half a second each


@dataclass
class Response:
    """Opens incidents and closes them. `growth` is that of patience, after incidents that ended by themselves.

    `on_hang` is called once for every incident that opens, as soon as a look behind its evidence finds its ranks where
    they were: to take the evidence and to judge it costs seconds, in which a job may go on. Where ranks were stopped it
    waits for `STOPPED_S`, and where one has failed until the others have stood for `LEFT_BEHIND_S`: a launcher ends
    them sooner. `deepen` adds native frames of some pids to a snapshot.
    """

    incidents: Incidents
    on_hang: Callable[[Incident], None] = lambda incident: None
    deepen: Callable[[Snapshot, Sequence[int]], Snapshot] = lambda snapshot, pids: snapshot

    def __post_init__(self) -> None:
        self.growth = 1.0
        self._at_opening: dict[int, RankState] = {}
        self._moves_since: float | None = None
        self._unanswered = False
        self._stopped_since: float | None = None

    def act(
        self,
        judgement: Judgement,
        snapshot: Snapshot,
        rank_states: Sequence[RankState],
        judged: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the judgement into the incidents, call `judged`, and note what an incident that opens asks for."""
        before = self.incidents.open
        self.incidents.judged(judgement, snapshot)
        judged()
        opened = self.incidents.open
        if opened is not None and before is None:
            self._at_opening = {each.pid: _when_seen(each, snapshot) for each in rank_states}
            self.incidents.enrich(judgement, self._deepened(opened, snapshot, rank_states))
            self._unanswered, self._stopped_since = True, None

    def confirmed(self, snapshot: Snapshot, rank_states: Sequence[RankState]) -> Snapshot:
        """The snapshot with native frames of ranks that may wait on their device or for the answer of a remote call.

        Python frames do not show that. One rank of each stack is looked at, before the judgement: each costs half a
        second, and only jobs with work outstanding on a device, or with remote calls, pay for it.
        """
        here = {each.rank for each in rank_states}
        pids = [pid for rank, pid in worth_confirming(snapshot) if rank in here]
        return self._natively(snapshot, here, pids[:MOST_NATIVE]) if pids else snapshot

    def adopt(self, ruling: Ruling, rank_states: Sequence[RankState]) -> None:
        """Take over what another node has judged."""
        before = self.incidents.open
        if self.incidents.adopt(ruling.incident, ruling.path, ruling.node) and before is None:
            self._at_opening = {each.pid: each for each in rank_states}
            self._unanswered, self._stopped_since = True, None

    def look(self, rank_states: Sequence[RankState], now: float) -> None:
        """Close the open incident if its ranks go on; if they are still where they were, do what it asks for."""
        self._close_if_moving(rank_states, now)
        self._answer_if_still(rank_states, now)

    def _answer_if_still(self, rank_states: Sequence[RankState], now: float) -> None:
        """Do what the open incident asks for, unless a rank that waited has gone on since."""
        opened = self.incidents.open
        failed = opened is not None and opened.status is Status.FAILED  # others may move, and wait for it then
        if not self._unanswered or (opened is not None and not failed and self._has_moved(opened, rank_states)):
            return
        if opened is not None and (self._may_be_let_go(opened, now) or _may_yet_end(opened, rank_states, now)):
            return
        self._unanswered = False
        if opened is not None:
            self.on_hang(opened)

    def _may_be_let_go(self, opened: Incident, now: float) -> bool:
        """Its culprits were stopped, and not long ago."""
        if opened.verdict.cause != "rank-frozen":
            self._stopped_since = None
            return False
        self._stopped_since = now if self._stopped_since is None else self._stopped_since
        return now - self._stopped_since < STOPPED_S

    def _close_if_moving(self, rank_states: Sequence[RankState], now: float) -> None:
        """A hang is over when a rank that waited then has gone on since, and none has ended a moment later.

        So is the wait of launchers that had no ranks yet, when the first ranks come.
        """
        opened, then = self.incidents.open, self._at_opening
        since, self._moves_since = self._moves_since, None
        if opened is None:
            return
        living = {each.pid for each in rank_states if each.alive}
        begins = not then and opened.status is Status.HUNG and bool(living)
        if living and living.isdisjoint(then) and not begins:
            self.incidents.file_away()  # a launcher has restarted the job: what comes now is a new attempt
        if opened.status not in (Status.HUNG, Status.LINGERING):
            return
        moved = begins or self._has_moved(opened, rank_states)
        whole = all(each.alive and not each.failing for each in rank_states)
        if not (self.incidents.open and moved and whole):
            return
        self._moves_since = now if since is None else since
        if begins or now - self._moves_since >= MOVES_S:
            self._recovered()

    def ended_well(self, rank_states: Sequence[RankState]) -> None:
        """The job has come to its end: if its ranks moved last, nothing was wrong with them.

        They may have gone on and ended between two looks.
        """
        opened = self.incidents.open
        if opened is not None and (self._moves_since is not None or self._has_moved(opened, rank_states)):
            self._recovered()

    def came_down(self, exit_code: int | None, launched: Sequence[Launched], rank_states: Sequence[RankState]) -> None:
        """The command has ended with this code: where that was no failure of a rank's program, it is said why."""
        said = aborted_at_exit(launched, rank_states) if exit_code and not self.incidents.is_any else ""
        if said:
            self.incidents.say(said)

    def _has_moved(self, opened: Incident, rank_states: Sequence[RankState]) -> bool:
        waited = _victims(opened, rank_states) or rank_states  # a culprit may move while the others wait on
        return any(each.went_on_since(self._at_opening.get(each.pid, each)) for each in waited)

    def _recovered(self) -> None:
        self._moves_since = None
        self.growth = min(self.growth * GROWTH, MOST_GROWTH)
        self.incidents.moved_on()

    def _deepened(self, opened: Incident, snapshot: Snapshot, rank_states: Sequence[RankState]) -> Snapshot:
        """The snapshot with native frames of those ranks that are here: on another node their pids mean others."""
        here = {each.rank for each in rank_states}
        own = tuple(rank for rank in snapshot.ranks if rank.rank in here)
        return self._natively(snapshot, here, _worth_native(opened, own))

    def _natively(self, snapshot: Snapshot, here: Container[int | None], pids: Sequence[int]) -> Snapshot:
        own = tuple(rank for rank in snapshot.ranks if rank.rank in here)
        found = self.deepen(replace(snapshot, ranks=own), pids)
        others = (rank for rank in snapshot.ranks if rank.rank not in here)
        return replace(found, ranks=tuple(sorted((*found.ranks, *others), key=lambda rank: rank.rank)))


def _when_seen(rank_state: RankState, snapshot: Snapshot) -> RankState:
    """What it did while the evidence was taken is a part of that: the rank may have come to its wait just then."""
    return replace(rank_state, moved_at=max(rank_state.moved_at, snapshot.taken_at))


def _worth_native(opened: Incident, ranks: Sequence[RankEvidence]) -> list[int]:
    """The pids whose native frames say more: the culprits, and one of the ranks that wait for them."""
    here = {None, *(rank.rank for rank in ranks)}
    pids = [who.pid for who in opened.verdict.culprits if who.pid is not None and who.rank in here]
    waiting = [rank.pid for rank in ranks if rank.rank in opened.verdict.victims and rank.pid is not None]
    return [*pids[:MOST_NATIVE], *waiting[:1]]


def _may_yet_end(opened: Incident, rank_states: Sequence[RankState], now: float) -> bool:
    """A rank has failed, and none is left, or one of those that are has moved or written not long ago."""
    living = [each for each in rank_states if each.alive]
    last = (max(each.moved_at, each.wrote_at or 0.0) for each in living)
    stand = bool(living) and all(now - at >= LEFT_BEHIND_S for at in last)
    return opened.status is Status.FAILED and not stand


def _victims(opened: Incident, rank_states: Sequence[RankState]) -> list[RankState]:
    return [each for each in rank_states if each.rank in opened.verdict.victims]
