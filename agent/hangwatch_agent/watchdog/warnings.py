"""What is told of a job that still runs, each once: that the steps of ranks differ, and what its health warns of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hangwatch.model import Divergence, HealthWarning, Reading
from hangwatch.ranks.divergence import DivergenceWatch
from hangwatch_agent.watchdog.divergence_words import divergence_sentence


class Warnings:
    """The warnings of one watchdog.

    Args:
        say_once: prints a sentence, unless one was printed under this key.
        news: tells the dashboard what there is now.
        heed: acts on a warning that is new.
    """

    def __init__(
        self,
        say_once: Callable[[str, str], object],
        news: Callable[[], None],
        heed: Callable[[HealthWarning], None],
    ) -> None:
        self._say_once, self._news, self._heed = say_once, news, heed
        self._watch = DivergenceWatch()
        self._told: dict[tuple[str, tuple[int, ...]], HealthWarning] = {}
        self.divergences: tuple[Divergence, ...] = ()

    @property
    def told(self) -> tuple[HealthWarning, ...]:
        return tuple(self._told.values())

    def compare(self, readings: Sequence[Reading], now: float) -> None:
        """Tell of ranks that have issued different numbers of collectives in one step."""
        for divergence in self._watch.update(readings, now):
            if divergence not in self.divergences:
                self.divergences += (divergence,)
                if not divergence.doubtful:
                    sentence = divergence_sentence(divergence)
                    self._say_once(f"divergence {divergence.group}", f"hangwatch: warning: {sentence}")
                self._news()

    def tell(self, warning: HealthWarning | None) -> None:
        if warning is not None and self._told.setdefault((warning.kind, warning.ranks), warning) is warning:
            self._say_once(f"warning {warning.kind}", f"hangwatch: warning: {warning.summary}")
            self._news()
            self._heed(warning)
