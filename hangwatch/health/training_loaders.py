"""The loaders whose batches are the steps, as the warnings on loaders and samplers compare them."""

from __future__ import annotations

from hangwatch.model import LoaderFacts, Reading

from .telling import Ranks

LEAST_SAMPLES = 16  # fewer may come twice in the same order by chance


def training(reading: Reading) -> LoaderFacts | None:
    """The one loader whose batches are the steps; None where there is none, or more than one."""
    found = [loader for loader in reading.loaders if loader.training and loader.epoch >= 0]
    return found[0] if len(found) == 1 else None


def alike(ranks: Ranks) -> dict[int, LoaderFacts]:
    """Every rank's training loader, if all have one, iterated at the same line over the same kind of data; else {}."""
    found = {rank: loader for rank, reading in ranks.items() if (loader := training(reading)) is not None}
    kinds = {(loader.where, loader.dataset) for loader in found.values()}
    return found if len(found) == len(ranks) and len(kinds) == 1 else {}


def samplers(ranks: Ranks) -> dict[int, LoaderFacts]:
    """The training loaders whose sampler knows of replicas."""
    found = {rank: training(reading) for rank, reading in ranks.items()}
    return {rank: each for rank, each in found.items() if each is not None and each.sampler_replicas is not None}
