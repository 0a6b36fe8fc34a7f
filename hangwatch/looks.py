"""When a job that shows signs of trouble is looked at: by a node's watchdog, and by the dashboard for all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_PAUSE_S = 60.0  # between two looks at one episode


@dataclass(frozen=True)
class Reason:
    """Why a look is due. Reasons with one `key` are one episode: the pauses between their looks grow.

    Those that are not `urgent` wait until the rest after the last look is over. `text` says the reason to people.
    """

    kind: str
    key: tuple[object, ...]
    urgent: bool = False
    text: str = ""


class Schedule:
    """Remembers which looks were taken, so that one episode is looked at after 0, 1, 2, 4 ... 60 seconds."""

    def __init__(self) -> None:
        self._looks: dict[tuple[object, ...], tuple[int, float]] = {}
        self._resting_until = 0.0

    def due(self, found: Sequence[Reason], now: float) -> Reason | None:
        """The reason to look now, or None."""
        for reason in found:
            count, at = self._looks.get((reason.kind, *reason.key), (0, 0.0))
            pause = min(LONGEST_PAUSE_S, 2.0 ** (count - 1)) if count else 0.0
            if now - at >= pause and (reason.urgent or now >= self._resting_until):
                return reason
        return None

    def looked(self, found: Sequence[Reason], now: float, rest_s: float) -> None:
        """Note a look that answered all of `found`; for `rest_s` after it only urgent reasons are due."""
        keys = {(reason.kind, *reason.key) for reason in found}
        self._looks = {key: (self._looks.get(key, (0, 0.0))[0] + 1, now) for key in keys}
        self._resting_until = now + rest_s
