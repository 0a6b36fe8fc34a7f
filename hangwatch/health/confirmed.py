"""Forecasts that have stood for some time: nodes tell their plans at different moments."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch.model import HealthWarning

from .thresholds import CONFIRMED_S


class Confirmed:
    """Each kind of warning once, when it has been found without a break for CONFIRMED_S."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, HealthWarning]] = {}  # since when, and the newest of its kind
        self.told: dict[str, HealthWarning] = {}  # kept for good: a plan does not mend itself

    def note(self, found: Iterable[HealthWarning], now: float) -> None:
        """Takes what a comparison of all plans has found at the moment `now`, in seconds."""
        since = {kind: at for kind, (at, _) in self._found.items()}
        self._found = {each.kind: (since.get(each.kind, now), each) for each in found}

    def due(self, now: float) -> tuple[HealthWarning, ...]:
        """The warnings that are to be told now."""
        stood = (each for at, each in self._found.values() if now - at >= CONFIRMED_S)
        new = tuple(each for each in stood if each.kind not in self.told)
        self.told |= {each.kind: each for each in new}
        return new
