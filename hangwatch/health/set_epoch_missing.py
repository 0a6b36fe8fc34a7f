"""Samplers that shuffle by the epoch they are told, and are not told it."""

from __future__ import annotations

from hangwatch.model import HealthWarning, LoaderFacts
from hangwatch.words import ranks as named

from .telling import Ranks, warning
from .training_loaders import LEAST_SAMPLES, samplers


def set_epoch_missing(ranks: Ranks) -> HealthWarning | None:
    """A sampler that shuffles by a seed and the epoch gave two epochs in the same order."""
    repeating = {rank: loader for rank, loader in samplers(ranks).items() if _repeats(loader)}
    if not repeating:
        return None
    sampler = repeating[min(repeating)].sampler
    summary = (
        f"The last two epochs came in the same order on {named(repeating)}: {sampler} shuffles by the epoch it is told"
    )
    return warning("set-epoch-missing", summary, ranks, about=repeating)


def _repeats(loader: LoaderFacts) -> bool:
    drawn = loader.drawn_per_epoch[-2:]
    return (
        loader.shuffle is True
        and loader.sampler_indices_hash != ""
        and loader.sampler_indices_hash == loader.previous_indices_hash
        and (loader.sampler_length or 0) >= LEAST_SAMPLES
        and len(drawn) == 2
        and min(drawn) > 1
    )
