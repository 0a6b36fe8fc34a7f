"""What `--on-hang` does with a hung job, and what came of it: the ranks that we have ended, and a later attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from hangwatch.model import Incident, Launched
from hangwatch.settings import Settings
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.watchdog import abort


class OnHang:
    """Ends the job (`--on-hang abort`) or the ranks of this attempt (`abort-attempt`) in a thread of its own.

    `happened` says that it has begun. Ranks that we have ended are not judged any more: how they end says nothing about
    the hang.
    """

    def __init__(
        self,
        settings: Settings,
        root: int | None,
        say: Callable[[str], None],
        clock: Callable[[], float] = steady_clock.time,
    ) -> None:
        self.happened = False
        self.at = 0.0
        self._settings, self._root, self._say, self._clock = settings, root, say, clock
        self._boards: set[Path] = set()
        self._pids: set[int] = set()
        self._later_attempt = False
        self._thread: threading.Thread | None = None

    @property
    def whole_job(self) -> bool:
        return self._settings.on_hang == "abort"

    def begin(self, incident: Incident, rank_states: Sequence[RankState], launched: Sequence[Launched]) -> bool:
        """End what the incident is about. False where it ends by itself."""
        if self._settings.on_hang == "report":
            return False
        culprits = [each.pid for each in incident.verdict.culprits if each.pid is not None]
        self._start(self._end, rank_states, launched, culprits)
        return True

    def before_it_hangs(self, rank_states: Sequence[RankState], launched: Sequence[Launched]) -> None:
        """End the whole job because of a forecast (`--on-forecast abort`)."""
        self._start(self._end_for_forecast, rank_states, launched, ())

    def _start(
        self,
        end: Callable[[Sequence[RankState], Sequence[int]], None],
        rank_states: Sequence[RankState],
        launched: Sequence[Launched],
        culprits: Sequence[int],
    ) -> None:
        self.happened, self._later_attempt, self.at = True, False, self._clock()
        self._boards |= {each.path for each in rank_states}
        self._pids = {each.pid for each in rank_states} | {each.pid for each in launched}
        self._thread = threading.Thread(
            target=end, args=(tuple(rank_states), culprits), name="hangwatch-abort", daemon=True
        )
        self._thread.start()

    def _end_for_forecast(self, rank_states: Sequence[RankState], culprits: Sequence[int]) -> None:
        abort.end_job(rank_states, culprits, self._settings.abort_grace, self._root)
        self._say("hangwatch: ended the job before it hangs, as --on-forecast abort asks")

    def remaining(self, rank_states: Sequence[RankState]) -> tuple[RankState, ...]:
        """The ranks that we have not ended: those of a later attempt, once there is one."""
        found = tuple(each for each in rank_states if each.path not in self._boards)
        self._later_attempt = self._later_attempt or (self.happened and bool(found))
        return found

    def remaining_launched(self, launched: Sequence[Launched]) -> tuple[Launched, ...]:
        """The processes that were started as ranks after we had ended those before."""
        return tuple(each for each in launched if each.pid not in self._pids or each.started_at > self.at)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to watch until a later attempt begins."""
        return self.happened and not self._later_attempt

    def finish(self, slack_s: float) -> None:
        """Wait until what we have begun to end has ended, `slack_s` longer than the grace at most."""
        if self._thread is not None:
            self._thread.join(self._settings.abort_grace + slack_s)

    def was_aborted(self, exit_code: int) -> bool:
        """Whether the command, which ended with this code, did so because we ended its ranks."""
        return self.happened and not (exit_code == 0 and self._later_attempt)

    def _end(self, rank_states: Sequence[RankState], culprits: Sequence[int]) -> None:
        grace_s = self._settings.abort_grace
        if self.whole_job:
            killed = abort.end_job(rank_states, culprits, grace_s, self._root)
        else:
            killed = abort.end_ranks(rank_states, culprits, grace_s)
        stubborn = f"; {len(killed)} of their processes had to be killed" if killed else ""
        what = "the job" if self.whole_job else "the ranks of this attempt"
        self._say(f"hangwatch: ended {what}, as --on-hang {self._settings.on_hang} asks{stubborn}")
        if not self.whole_job and self._root is not None and abort.end_idle_command(self._root, grace_s):
            self._say("hangwatch: ended the command too: it waited for a minute without its ranks")
