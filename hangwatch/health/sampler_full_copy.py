"""Samplers that give all of the data to every rank."""

from __future__ import annotations

from hangwatch.model import HealthWarning, LoaderFacts

from .telling import Ranks, purely_data_parallel, warning, world
from .training_loaders import LEAST_SAMPLES, alike

TORCHS_OWN = (
    "SequentialSampler",
    "RandomSampler",
    "DistributedSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
)


def sampler_full_copy(ranks: Ranks) -> HealthWarning | None:
    """A sampler that knows of several ranks, or is not torch's own, gives all data to each.

    torch's own samplers are left alone: behind them each rank may have a data set of its own.
    """
    loaders = alike(ranks)
    if len(loaders) < 2 or not purely_data_parallel(ranks):
        return None
    if not all(each.drawn and _whole(each) for each in loaders.values()):
        return None
    shared = all((each.sampler_replicas or 1) > 1 for each in loaders.values())
    orders = {each.sampler_indices_hash for each in loaders.values()}
    same_order = len(orders) == 1 and "" not in orders
    custom = all(each.sampler not in TORCHS_OWN for each in loaders.values())
    if not shared and not (custom and same_order):
        return None
    sampler = next(iter(loaders.values()))
    summary = (
        f"Every rank draws all {sampler.dataset_length:,} samples of {sampler.dataset}: {sampler.sampler} does not"
        f" divide them among the {world(ranks)} ranks"
    )
    evidence = ["all ranks drew the same indices in the same order"] if same_order else []
    return warning("sampler-full-copy", summary, ranks, evidence=evidence)


def _whole(loader: LoaderFacts) -> bool:
    """The sampler is as long as the data set; of one that does not say, an epoch that has ended drew all of it."""
    length, size = loader.dataset_length, loader.batch_size
    if length is None or length < LEAST_SAMPLES:
        return False
    if loader.sampler_length is not None:
        return loader.sampler_length == length
    ended = [drawn for drawn, whole in zip(loader.drawn_per_epoch, loader.exhausted_per_epoch, strict=False) if whole]
    return bool(ended) and bool(size) and ended[-1] in (length // (size or 1), -(-length // (size or 1)))
