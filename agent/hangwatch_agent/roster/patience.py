"""How long a rank may stand still before it counts as stalled without proof.

Patience learns: a job whose slowest recent step took 40 s is given 240 s, on whichever rank that was. What rank 0 does
between two epochs, such as copying a checkpoint, is no part of its own steps, but of those that wait for it. Stages in
which long silences are normal (the first step compiles and warms caches, an evaluation runs for minutes) are given more
from the start, and so is a rank that prints or writes something now and then, or naps in a loop that ends by itself.
Every incident that ended by itself doubles what follows. Of a sleep the end is waited for, once.

All that is for guesses. Where a fact keeps a rank from going on by itself (`hangwatch.judge.patience`), patience is a
minute at most, in every stage; ten seconds, where nothing can be on its way to any rank. Where the ranks only sleep
and wait for each other, no stage is a reason for more than `stall_after`, but their pace is. Of a rank whose stack is
in Python's exit the training is over, whatever its board says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hangwatch.facts.case import Case
from hangwatch.facts.processes.sleep import sleeps_long
from hangwatch.judge.naps import asking_the_store
from hangwatch.judge.patience import (
    FACTS_S,
    NOTHING_COMES_S,
    ends_after,
    exiting,
    held,
    in_first_step,
    outside_waits,
    resting,
    shortened,
)
from hangwatch.judge.waiting_together import nothing_is_on_its_way
from hangwatch.model import Frame, Phase, ProcessEvidence, RankEvidence, Snapshot
from hangwatch.ranks.view import RankView
from hangwatch.settings import Settings
from hangwatch_agent.roster.phases import EXITING, STARTING
from hangwatch_agent.roster.rank_states import RankState

SLOW_STEPS = 6.0  # times the slowest recent step
LONG_STAGES = 5.0  # times stall_after, for first step, evaluation, and a rank that writes something now and then
SLEEPING = 2.0  # times its patience that a rank may stand still while it sleeps
AWAKE_S = 5.0  # after the end of a sleep, until which what comes next has moved a counter
MOST_GROWTH = 8.0
BEFORE_INIT = 10.0  # times start_after: how long a living process may take before init_process_group


def patience(rank_state: RankState, settings: Settings, growth: float = 1.0) -> float:
    """Seconds of stillness after which a rank counts as stalled, whatever a look has shown of it."""
    reading = rank_state.reading
    if reading.phase is Phase.START:  # in the user's own code: it may load data, and has called no rank yet
        return settings.start_after * BEFORE_INIT * growth
    if reading.phase in STARTING:
        return settings.start_after * growth
    if reading.phase in EXITING:
        return settings.linger_after * growth
    long = reading.phase == Phase.EVAL or in_first_step(reading) or writes(rank_state, settings)
    base = settings.stall_after * (LONG_STAGES if long else 1.0)
    return max(base, SLOW_STEPS * rank_state.slowest_s) * growth


def writes(rank_state: RankState, settings: Settings) -> bool:
    """It waits for no rank, and has written something in the second half of its usual patience.

    A progress bar that notices that it stands still writes once, soon after that.
    """
    since = rank_state.wrote_at
    return since is not None and not rank_state.blocked and since - rank_state.moved_at > settings.stall_after / 2


def patience_with(rank_state: RankState, settings: Settings, growth: float = 1.0) -> float:
    """Patience with a rank as it stands: less where a fact is known of it."""
    if rank_state.held_patience_s is not None:
        return rank_state.held_patience_s
    return patience(rank_state, settings, growth)


Place = tuple[Frame | None, ...]


@dataclass(frozen=True)
class _Hold:
    """What a look has shown of a rank: since which of its movements, at which place, and when it was first seen.

    `wakes_after_s` is when it, or a worker of its, comes out of a sleep; 0 where no look has shown a sleep. `longer` is
    how many times the usual patience it is given as one that naps, or waits for what is no part of the job.
    """

    moved_at: float
    place: Place
    seen_after_s: float
    wakes_after_s: float
    longer: float
    patience_s: float


class Holds:
    """Remembers the facts that the looks have shown, by pid, for as long as the ranks stand where they stood."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[int, _Hold] = {}

    def noted(self, snapshot: Snapshot, rank_states: Iterable[RankState], growth: float = 1.0) -> Snapshot:
        """The snapshot with the facts of each rank and the patience that follows from them, which are remembered."""
        facts = held(snapshot)
        by_pid = {each.pid: each for each in rank_states}
        most = self._most(snapshot, facts, by_pid.values())
        longer = {rank: times for rank, times in outside_waits(snapshot).items() if rank not in facts}
        known = self._known
        self._known = {}
        ranks = []
        for rank in snapshot.ranks:
            rank_state, fact = by_pid.get(rank.pid or -1), facts.get(rank.rank, "")
            if rank_state is not None:
                times = longer.get(rank.rank, 1.0)
                hold = self._hold(rank, rank_state, known.get(rank_state.pid), most.get(rank.rank), times, growth)
                if rank.rank in most or hold.wakes_after_s or hold.longer > 1.0:
                    self._known[rank_state.pid] = hold
                    rank = replace(rank, held=fact, patience_s=hold.patience_s)
            ranks.append(rank)
        return replace(snapshot, ranks=tuple(ranks))

    def _most(self, snapshot: Snapshot, facts: Mapping[int, str], rank_states: Iterable[RankState]) -> dict[int, float]:
        """The most patience with each rank of which the snapshot shows more than its board does."""
        settings = self._settings
        rank_states = tuple(rank_states)
        writing = {each.rank for each in rank_states if writes(each, settings)} - asking_the_store(snapshot)
        pace_s = SLOW_STEPS * max((each.slowest_s for each in rank_states), default=0.0)
        facts_s = NOTHING_COMES_S if facts and nothing_is_on_its_way(Case(snapshot)) else FACTS_S
        return {
            **dict.fromkeys(resting(snapshot) - writing, max(settings.stall_after, pace_s)),
            **dict.fromkeys(facts, min(settings.stall_after, facts_s)),
            **dict.fromkeys(exiting(snapshot), settings.linger_after),
        }

    def _hold(
        self,
        rank: RankEvidence,
        rank_state: RankState,
        known: _Hold | None,
        most_s: float | None,
        longer: float,
        growth: float,
    ) -> _Hold:
        place = _place(rank)
        if known is not None and known.moved_at != rank_state.moved_at:
            known = None
        seen_after_s = known.seen_after_s if known is not None and known.place == place else rank.still_s
        # Of one that sleeps again at the same place the first end was waited for: it is a loop.
        again = known is not None and known.place == place and known.wakes_after_s
        wakes_after_s = again or max(_wakes_after_s(rank), known.wakes_after_s if known is not None else 0.0)
        longer = max(longer, known.longer if known is not None and known.place == place else 1.0)
        limit_s = patience(rank_state, self._settings, growth)
        if most_s is not None:
            limit_s = shortened(limit_s, most_s * growth, seen_after_s)
        if longer > 1.0:
            limit_s = max(limit_s, longer * self._settings.stall_after * growth)
        if wakes_after_s:  # what it sleeps for is not known before it has gone on for a moment
            limit_s = max(limit_s, min(wakes_after_s + AWAKE_S, SLEEPING * limit_s))
        return _Hold(rank_state.moved_at, place, seen_after_s, wakes_after_s, longer, limit_s)

    def applied(self, rank_states: Sequence[RankState]) -> tuple[RankState, ...]:
        """The ranks' states, with the patience that is known for those that have not moved since."""
        return tuple(self._apply(each) for each in rank_states)

    def _apply(self, rank_state: RankState) -> RankState:
        hold = self._known.get(rank_state.pid)
        if hold is None or hold.moved_at != rank_state.moved_at:
            return rank_state
        return replace(rank_state, held_patience_s=hold.patience_s)


def _wakes_after_s(rank: RankEvidence) -> float:
    """When, after it last moved, the last of its processes that sleep wakes, or its own code gives up to wait.

    0 where none sleeps for long, nor waits with a timeout of its own, or for a child that sleeps.
    """
    processes = (rank.process, *(worker.facts for worker in rank.workers))
    sleeps = [each.sleeps_s or 0.0 for each in processes if each is not None and sleeps_long(each)]
    most = max((*sleeps, ends_after(RankView(rank.rank, rank, sampled_twice=True))))
    return rank.still_s + most if most else 0.0


def _place(rank: RankEvidence) -> Place:
    """Where its main thread stands, and those of its workers; no place in a loop that only turns."""
    if rank.reading is not None and any(loader.gives_nothing for loader in rank.reading.loaders):
        return ()
    return (_innermost(rank), *(_innermost(worker) for worker in rank.workers))


def _innermost(process: RankEvidence | ProcessEvidence) -> Frame | None:
    return next((stack.frames[0] for stack in process.stacks if stack.main and stack.frames), None)
