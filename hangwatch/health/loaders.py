"""Loaders and samplers: unequal lengths, the wrong share of the data, the same order again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hangwatch.model import HealthWarning, LoaderFacts, Reading, StepName
from hangwatch.words import plural, step
from hangwatch.words import ranks as named

from .plans import draws_all, waits_in_each_step
from .telling import Ranks, purely_data_parallel, warning, world

LEAST_SAMPLES = 16  # fewer may come twice in the same order by chance
JOIN = "/torch/distributed/algorithms/join.py"
TORCHS_OWN = (
    "SequentialSampler",
    "RandomSampler",
    "DistributedSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
)


Waits = Callable[[Reading, LoaderFacts], bool]
"""Whether the steps of a rank wait for other ranks."""


def uneven_forecast(ranks: Ranks, waits: Waits | None = None) -> HealthWarning | None:
    """The ranks' training loaders have different lengths, and their steps wait for each other."""
    waits = waits or _waits
    loaders = _alike(ranks)
    known = {rank: loader for rank, loader in loaders.items() if loader.length is not None}
    lengths = {rank: (loader.length or 0) - loader.resumed_at for rank, loader in known.items()}
    if len(lengths) < len(loaders) or len(set(lengths.values())) < 2:
        return None
    if not _will_be_drawn_whole(loaders) or not all(waits(ranks[rank], loaders[rank]) for rank in loaders):
        return None
    least, most = min(lengths.values()), max(lengths.values())
    short = [rank for rank, length in lengths.items() if length == least]
    first, other = min(short), min(rank for rank, length in lengths.items() if length == most)
    left = " left" if any(loader.resumed_at for loader in loaders.values()) else ""
    summary = (
        f"The loader of {named(short)} has {plural(least, 'batch')}{left}, that of rank {other} {most:,}: the job will"
        f" hang at {_step_of(ranks[first], loaders[first], least)}, unless the loop ends before or the ranks agree on"
        " its end"
    )
    evidence = [_made_of(rank, loaders[rank]) for rank in sorted(lengths)[:16]]
    return warning("uneven-forecast", summary, ranks, about=short, evidence=evidence)


def sampler_world_mismatch(ranks: Ranks) -> HealthWarning | None:
    """The samplers' replicas are not the ranks. Where groups are smaller than the job, they need not be."""
    if not purely_data_parallel(ranks):
        return None
    size, samplers = world(ranks), _samplers(ranks)
    wrong = {rank: each for rank, each in samplers.items() if each.sampler_replicas != size}
    if wrong:
        sampler = wrong[min(wrong)]
        summary = (
            f"The {sampler.sampler} of {named(wrong)} shares the data among {sampler.sampler_replicas} replicas,"
            f" but the job has {size} ranks"
        )
        return warning("sampler-world-mismatch", summary, ranks, about=wrong)
    parts = Counter(sampler.sampler_rank for sampler in samplers.values() if sampler.sampler_rank is not None)
    part, times = max(parts.items(), key=lambda each: each[1], default=(None, 0))
    if times < 2:
        return None
    same = [rank for rank, sampler in samplers.items() if sampler.sampler_rank == part]
    summary = f"{named(same, capital=True)} draw the same share of the data: each sampler was made for rank {part}"
    return warning("sampler-world-mismatch", summary, ranks, about=same)


def sampler_full_copy(ranks: Ranks) -> HealthWarning | None:
    """A sampler that knows of several ranks, or is not torch's own, gives all data to each.

    torch's own samplers are left alone: behind them each rank may have a data set of its own.
    """
    loaders = _alike(ranks)
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


def set_epoch_missing(ranks: Ranks) -> HealthWarning | None:
    """A sampler that shuffles by a seed and the epoch gave two epochs in the same order."""
    repeating = {rank: loader for rank, loader in _samplers(ranks).items() if _repeats(loader)}
    if not repeating:
        return None
    sampler = repeating[min(repeating)].sampler
    summary = (
        f"The last two epochs came in the same order on {named(repeating)}: {sampler} shuffles by the epoch it is told"
    )
    return warning("set-epoch-missing", summary, ranks, about=repeating)


# ---------------------------------------------------------------- what the rules ask


def _training(reading: Reading) -> LoaderFacts | None:
    """The one loader whose batches are the steps; None where there is none, or more than one."""
    found = [loader for loader in reading.loaders if loader.training and loader.epoch >= 0]
    return found[0] if len(found) == 1 else None


def _alike(ranks: Ranks) -> dict[int, LoaderFacts]:
    """Every rank's training loader, if all have one, iterated at the same line over the same kind of data; else {}."""
    found = {rank: loader for rank, reading in ranks.items() if (loader := _training(reading)) is not None}
    kinds = {(loader.where, loader.dataset) for loader in found.values()}
    return found if len(found) == len(ranks) and len(kinds) == 1 else {}


def _samplers(ranks: Ranks) -> dict[int, LoaderFacts]:
    """The training loaders whose sampler knows of replicas."""
    found = {rank: _training(reading) for rank, reading in ranks.items()}
    return {rank: each for rank, each in found.items() if each is not None and each.sampler_replicas is not None}


def _will_be_drawn_whole(loaders: dict[int, LoaderFacts]) -> bool:
    """No rank has ended this epoch, and the epochs before were alike on all ranks, each drawn to its end."""
    each = loaders.values()
    underway = all(not loader.exhausted and not loader.left for loader in each)
    return (
        underway
        and len({loader.drawn_per_epoch for loader in each}) == 1
        and all(all(x.exhausted_per_epoch) for x in each)
    )


def _made_of(rank: int, loader: LoaderFacts) -> str:
    parts = [
        "" if loader.sampler_length is None else f"{loader.sampler_length:,} samples from {loader.sampler}",
        "" if loader.batch_size is None else f"batch size {loader.batch_size}",
        "" if loader.drop_last is None else f"drop_last={loader.drop_last}",
    ]
    told = ", ".join(part for part in parts if part)
    return f"rank {rank}: {plural(loader.length or 0, 'batch')}{f' ({told})' if told else ''}"


def _waits(reading: Reading, loader: LoaderFacts) -> bool:
    """Every step waits for other ranks: as they all have done, or before the first, as model and source say.

    Where gradients are accumulated, most steps wait for none, and unequal lengths may end in equally many that do.
    """
    if len(reading.steps) < 2:
        return waits_in_each_step(reading) and draws_all(loader.where) and not _joins(reading)
    pairs = zip(reading.steps, reading.steps[1:], strict=False)
    return not _joins(reading) and all(
        any(count > before.issued.get(group, count) for group, count in after.issued.items()) for before, after in pairs
    )


def waits_always(reading: Reading) -> bool:
    """The same of its training loader, for what travels to a dashboard."""
    loader = _training(reading)
    return loader is not None and _waits(reading, loader)


def _joins(reading: Reading) -> bool:
    """torch's Join evens the steps out: it has issued its notice, by which each forward says that it is still there."""
    return any(frame.file.endswith(JOIN) for call in reading.calls for frame in call.frames)


def _step_of(reading: Reading, loader: LoaderFacts, batch: int) -> str:
    progress = reading.progress
    known = progress.batch is not None and progress.epoch == loader.epoch
    number = progress.step - (progress.batch or 0) + batch if known else None
    return step(StepName(loader.epoch, batch, number))


def _whole(loader: LoaderFacts) -> bool:
    """The sampler is as long as the data set; of one that does not say, an epoch that has ended drew all of it."""
    length, size = loader.dataset_length, loader.batch_size
    if length is None or length < LEAST_SAMPLES:
        return False
    if loader.sampler_length is not None:
        return loader.sampler_length == length
    ended = [drawn for drawn, whole in zip(loader.drawn_per_epoch, loader.exhausted_per_epoch, strict=False) if whole]
    return bool(ended) and bool(size) and ended[-1] in (length // (size or 1), -(-length // (size or 1)))


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
