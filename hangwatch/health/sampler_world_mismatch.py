"""Samplers that were made for another number of ranks, or several of them for one rank."""

from __future__ import annotations

from collections import Counter

from hangwatch.model import HealthWarning
from hangwatch.words import ranks as named

from .telling import Ranks, purely_data_parallel, warning, world
from .training_loaders import samplers


def sampler_world_mismatch(ranks: Ranks) -> HealthWarning | None:
    """The samplers' replicas are not the ranks. Where groups are smaller than the job, they need not be."""
    if not purely_data_parallel(ranks):
        return None
    size, found = world(ranks), samplers(ranks)
    wrong = {rank: each for rank, each in found.items() if each.sampler_replicas != size}
    if wrong:
        sampler = wrong[min(wrong)]
        summary = (
            f"The {sampler.sampler} of {named(wrong)} shares the data among {sampler.sampler_replicas} replicas,"
            f" but the job has {size} ranks"
        )
        return warning("sampler-world-mismatch", summary, ranks, about=wrong)
    parts = Counter(sampler.sampler_rank for sampler in found.values() if sampler.sampler_rank is not None)
    part, times = max(parts.items(), key=lambda each: each[1], default=(None, 0))
    if times < 2:
        return None
    same = [rank for rank, sampler in found.items() if sampler.sampler_rank == part]
    summary = f"{named(same, capital=True)} draw the same share of the data: each sampler was made for rank {part}"
    return warning("sampler-world-mismatch", summary, ranks, about=same)
