"""When the terminal shows a first line on a job that does not move: after about ten seconds, then at growing intervals.

What counts as standing still is measured against the job itself: its slowest recent step, and the pauses after which it
has gone on before. What is said is `hangwatch.report.first_words`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from hangwatch.judge.countdown import reported_after
from hangwatch.looks import Reason
from hangwatch.model import Judgement, Snapshot
from hangwatch.report import first_words
from hangwatch_agent.roster.phases import STARTING
from hangwatch_agent.roster.rank_states import RankState

FIRST_S = 10.0  # of stillness, in a job whose steps are quick
LEAD_S = 1.0  # before a line is due its evidence is taken, which takes about that long
SLOW_STEPS = 2.0  # times the slowest recent step
PAUSES = 1.5  # times the longest of the recent pauses after which the job went on
MOST_PAUSES = 5
MOST_LEARNED_S = 120.0  # more is not learned from pauses: a job that recovers once a day may hang today
FIRST_STEP_S = 30.0  # while the first step may only be slow: it compiles, and nothing is known of its length
OFTEN, RARELY = 3.0, 5.0  # from one line to the next: times the stillness; rarely in stages that are known to be long
FRESH_S = 3.0  # evidence that is not older need not be taken again


def _moved_since(evidence: Snapshot, last: float) -> bool:
    """The job went on between our look at the boards and the evidence: it does not stand still."""
    readings = (rank.reading for rank in evidence.ranks if rank.reading is not None)
    return any(rank.moved for rank in evidence.ranks) or any(
        max(reading.progress.at, reading.phase_at) > last for reading in readings
    )


def last_progress(rank_states: Sequence[RankState], no_rank_since: float | None = None) -> float | None:
    """When the job last moved; None where no rank is there that could, unless a launcher has waited `no_rank_since`."""
    living = [each for each in rank_states if each.alive and not each.reading.detached]
    if living:
        return max(each.moved_at for each in living)
    return no_rank_since if not rank_states else None


class FirstWords:
    """The lines about one job. `say` prints one; `judge` says when the standstill will be reported."""

    def __init__(self, say: Callable[[str], None], judge: Callable[[Snapshot], Judgement]) -> None:
        self._say, self._judge = say, judge
        self._last: float | None = None
        self._states: dict[int, RankState] = {}
        self._said = False
        self._starting = self._stepping = False
        self._next_s = 0.0  # the stillness at which the next line is due, where more than that of the first
        self._announced_s: float | None = None  # the stillness after which a hang is to be reported, as was said
        self._pauses: deque[float] = deque(maxlen=MOST_PAUSES)
        self._evidence: Snapshot | None = None
        self._seen_at = 0.0

    def note(self, rank_states: Sequence[RankState], no_rank_since: float | None = None, *, told: bool = False) -> None:
        """Note the present state of the job. With `told` an incident is open, and its report says everything."""
        last = last_progress(rank_states, no_rank_since)
        before, self._last = self._last, last
        if last != before:
            if before is not None and last is not None and last > before:
                self._moved(last - before, went_on=any(map(self._went_on, rank_states)))
            self._said, self._next_s, self._evidence, self._announced_s = False, 0.0, None, None
        self._states = {each.pid: each for each in rank_states}
        self._said = self._said and not told
        self._starting = any(each.reading.phase in STARTING for each in rank_states)
        if self._stepping != (stepping := any(each.reading.times.steps > 0 for each in rank_states)):
            self._stepping = stepping
            self._pauses.clear()  # the time before the steps says nothing about how long they take

    def _went_on(self, rank_state: RankState) -> bool:
        known = self._states.get(rank_state.pid)
        return rank_state.alive and (known is None or rank_state.went_on_since(known))

    def _moved(self, stood_s: float, *, went_on: bool) -> None:
        if stood_s >= FIRST_S and not self._starting:
            self._pauses.append(stood_s)
        if self._said and went_on:
            self._say(first_words.moves_again(stood_s))

    def saw(self, snapshot: Snapshot, now: float) -> None:
        """Evidence was taken, for whatever reason: the next line need not take its own."""
        self._evidence, self._seen_at = snapshot, now

    def stands_for(self, rank_states: Sequence[RankState], now: float) -> float:
        """For how many seconds the job has made no progress, where that is longer than is usual for it; else 0."""
        stood_s = now - self._last if self._last is not None else 0.0
        return stood_s if stood_s >= self._threshold(rank_states) else 0.0

    def due(self, rank_states: Sequence[RankState], now: float) -> Reason | None:
        """The reason to print a line now, for which evidence is taken as well."""
        self._next_s = max(self._next_s, self._threshold(rank_states))
        lead_s = 0.0 if self.has_evidence(now) else LEAD_S
        if self._last is None or now - self._last < self._next_s - lead_s:
            return None
        return Reason("words", (self._last, self._next_s), urgent=True)

    def announced(self, now: float) -> tuple[Reason, ...]:
        """A look at the time for which the last line announced a report."""
        if self._last is None or self._announced_s is None or now - self._last < self._announced_s:
            return ()
        return (Reason("announced", (self._last, self._announced_s), urgent=True),)

    def has_evidence(self, now: float) -> bool:
        """Whether what was seen of this standstill is fresh enough for a line."""
        return self._evidence is not None and now - self._seen_at <= FRESH_S

    def _threshold(self, rank_states: Sequence[RankState]) -> float:
        slowest = max((each.reading.times.slowest_recent_s for each in rank_states), default=0.0)
        return max(FIRST_S, SLOW_STEPS * slowest, min(MOST_LEARNED_S, PAUSES * max(self._pauses, default=0.0)))

    def tell(self, now: float, *, elsewhere: bool = False) -> None:
        """Print what the newest evidence shows, unless the first step may only be slow."""
        evidence, last = self._evidence, self._last
        if evidence is None or last is None or _moved_since(evidence, last):
            return
        still_s = now - last
        slow = first_words.may_be_slow(evidence)
        if slow and self._next_s < FIRST_STEP_S:
            if now - self._seen_at < LEAD_S:  # older evidence is no reason to stay silent for long
                self._next_s = FIRST_STEP_S
            return
        after_s = reported_after(evidence, max(0.0, evidence.taken_at - last), self._judge)
        if not evidence.ranks and after_s is None:  # a launcher that is about to start its ranks
            self._next_s = FIRST_STEP_S
            return
        pause = RARELY if slow or first_words.is_long_stage(evidence, after_s) else OFTEN
        self._next_s = pause * (self._next_s if still_s < 1.5 * self._next_s else still_s)  # a line may come late
        self._announced_s = after_s if after_s is not None and after_s > still_s else None
        self._say(first_words.stands(evidence, still_s, after_s, elsewhere=elsewhere))
        self._said = True
