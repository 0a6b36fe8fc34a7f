"""What only the watchdog knows of each rank, since it has looked at it before: its standstill, its phases, its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangwatch.model import RankEvidence, Snapshot
from hangwatch.settings import Settings
from hangwatch_agent.roster.patience import patience
from hangwatch_agent.roster.phase_history import PhaseHistory
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.watchdog.deaths import DeathWatch
from hangwatch_agent.watchdog.last_stacks import LastStacks


class RankFacts:
    """Remembers the ranks of this node. `note` is for every poll, `added` for every evidence."""

    def __init__(self, settings: Settings, deaths: DeathWatch) -> None:
        self._settings = settings
        self._deaths = deaths
        self._phase_history = PhaseHistory()
        self._last_stacks = LastStacks()

    def note(self, rank_states: Sequence[RankState], now: float) -> None:
        """Take down the ranks' phases, and watch the processes that are new for their end."""
        self._phase_history.note(rank_states, now)
        for each in rank_states:
            if each.visible:
                self._deaths.watch(each.pid, each.ticks)

    def added(self, taken: Snapshot, rank_states: Sequence[RankState], growth: float) -> tuple[RankEvidence, ...]:
        """The evidence of the ranks with what is known of them besides. `growth` lengthens the patience with them."""
        by_pid = {each.pid: each for each in rank_states}
        completed = (
            self._completed(rank, rank_state, taken.taken_at, growth)
            if (rank_state := by_pid.get(rank.pid or -1)) is not None
            else rank
            for rank in taken.ranks
        )
        return self._last_stacks.filled(completed, taken.taken_at)

    def _completed(self, rank: RankEvidence, rank_state: RankState, taken_at: float, growth: float) -> RankEvidence:
        return replace(
            rank,
            process=self._deaths.with_exit_code(rank.process, rank_state.pid, rank_state.ticks),
            still_s=max(0.0, taken_at - rank_state.moved_at),
            patience_s=patience(rank_state, self._settings, growth),
            ended_at=self._deaths.ended.get((rank_state.pid, rank_state.ticks)),
            phases=self._phase_history.of(rank_state.path),
        )
