"""Training loaders of different lengths, where the steps of the ranks wait for one another."""

from __future__ import annotations

from collections.abc import Callable

from hangwatch.model import HealthWarning, LoaderFacts, Reading, StepName
from hangwatch.words import plural, step
from hangwatch.words import ranks as named

from .step_waits import waits_each_step
from .telling import Ranks, warning
from .training_loaders import alike

Waits = Callable[[Reading, LoaderFacts], bool]
"""Whether the steps of a rank wait for other ranks."""


def uneven_forecast(ranks: Ranks, waits: Waits | None = None) -> HealthWarning | None:
    """The ranks' training loaders have different lengths, and their steps wait for each other."""
    waits = waits or waits_each_step
    loaders = alike(ranks)
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


def _step_of(reading: Reading, loader: LoaderFacts, batch: int) -> str:
    progress = reading.progress
    known = progress.batch is not None and progress.epoch == loader.epoch
    number = progress.step - (progress.batch or 0) + batch if known else None
    return step(StepName(loader.epoch, batch, number))
