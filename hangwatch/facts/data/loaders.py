"""What the loaders of ranks are made of, as sentences: samplers of the program's, and looks into the data."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case

TORCHS_SAMPLERS = frozenset(
    {
        "DistributedSampler",
        "RandomSampler",
        "SequentialSampler",
        "SubsetRandomSampler",
        "WeightedRandomSampler",
        "_InfiniteConstantSampler",
    }
)


def sampler_words(case: Case, ranks: tuple[int, ...]) -> tuple[str, ...]:
    """A sampler that is none of torch's: it says how many batches there are."""
    samplers = {loader.sampler for view in case.views(ranks) if (loader := view.loader) is not None}
    other = samplers.pop() if len(samplers) == 1 else ""
    known = not other or other in TORCHS_SAMPLERS
    return () if known else (f"the loader of {case.name(ranks)} takes its samples from {other}",)


def look_words(case: Case) -> tuple[str, ...]:
    """Ranks that alone drew a batch before the training: a sampler that counts its passes is one ahead there."""
    looked = {view.rank: place for view in case if view.loader is not None and (place := view.loader.looked)}
    if not looked or len(looked) == len(case.ranks):
        return ()
    where = words.at(next(iter(looked.values())))
    drew = f"{case.name(looked)} alone drew a batch of that loader before the training{where}"
    return (f"{drew}: its sampler may give other batches since",)
