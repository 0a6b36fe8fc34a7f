"""What the ranks of this node did in the last minutes, phase by phase, as far as looks at their boards tell."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hangwatch.model import Phase, PhaseSpan, Reading
from hangwatch_agent.roster.rank_states import RankState

EVERY_S = 0.95  # between looks; the watchdog may poll faster
SPAN_S = 300.0  # remembered before the last change
MOST = 180  # spans of a rank: about 8 kB in a report


class PhaseHistory:
    """Remembers the phases of every rank, by board, for as long as the rank is among those given."""

    def __init__(self) -> None:
        self._phase_history: dict[Path, deque[PhaseSpan]] = {}
        self._looked_at = float("-inf")

    def note(self, rank_states: Sequence[RankState], now: float) -> None:
        """Take the ranks' phases down, unless the last look is too near."""
        if now - self._looked_at < EVERY_S:
            return
        self._looked_at = now
        known, self._phase_history = self._phase_history, {}
        for each in rank_states:
            track = self._phase_history[each.path] = known.get(each.path) or deque(maxlen=MOST)
            _add(track, each.reading, now)

    def of(self, board: Path) -> tuple[PhaseSpan, ...]:
        """The spans of the process with this board, oldest first; none for one that is not known."""
        return tuple(self._phase_history.get(board, ()))


def _add(track: deque[PhaseSpan], reading: Reading, now: float) -> None:
    step = reading.progress.step
    if track and track[-1].phase is reading.phase:
        if track[-1].step != step:
            track[-1] = replace(track[-1], step=step)
        return
    before = track[-1].at if track else 0.0
    entered = max(before, min(reading.phase_at or now, now))
    begun = max(before, reading.steps[0].at) if reading.steps else entered
    if track and track[-1].step < 0 <= step and begun < entered:
        track.append(PhaseSpan(begun, Phase.STEP, step))  # a fast job has made many steps since the last look
    track.append(PhaseSpan(entered, reading.phase, step))
    while track[0].at < track[-1].at - SPAN_S:
        track.popleft()
