"""Ledgers that differ: within a step, between epochs, at the ends of loops."""

from __future__ import annotations

from collections import Counter

from ..records import Certainty, LoaderFacts, StepName
from . import words
from .case import Case, RankView
from .finding import Finding, Rule


def uneven_steps(case: Case) -> Finding | None:
    """Ranks drew different numbers of batches in the same epoch, and those that ran short have left the loop."""
    return _uneven_now(case) or _uneven_before(case)


def _uneven_now(case: Case) -> Finding | None:
    """The epoch in which some loaders are exhausted while others still draw."""
    loaders = {view.rank: view.loader for view in case if view.loader is not None}
    short = {rank: loader for rank, loader in loaders.items() if loader.exhausted}
    longer = {
        rank: loader
        for rank, loader in loaders.items()
        if not loader.exhausted and not loader.left and _goes_beyond(loader, short.values())
    }
    if not short or not longer:
        return None
    epoch = next(iter(longer.values())).epoch
    return _uneven(case, epoch, {rank: loader.drawn for rank, loader in short.items()}, longer)


def _goes_beyond(loader: LoaderFacts, short: object) -> bool:
    return all(
        other.epoch == loader.epoch and other.drawn < loader.drawn
        for other in short  # type: ignore[attr-defined]
    )


def _uneven_before(case: Case) -> Finding | None:
    """The first finished epoch whose numbers of batches differ, however long ago."""
    loaders = {view.rank: view.loader for view in case if view.loader is not None}
    if len(loaders) < 2:
        return None
    drawn = {rank: _drawn(loader) for rank, loader in loaders.items()}
    epochs = sorted({epoch for counts in drawn.values() for epoch in counts})
    for epoch in epochs:
        counts = {rank: counts[epoch] for rank, counts in drawn.items() if epoch in counts}
        if len(counts) >= 2 and len(set(counts.values())) > 1:
            most = max(counts.values())
            short = {rank: count for rank, count in counts.items() if count < most}
            longer = {rank: loaders[rank] for rank, count in counts.items() if count == most}
            return _uneven(case, epoch, short, longer, most)
    return None


def _drawn(loader: LoaderFacts) -> dict[int, int]:
    """Batches of each finished epoch that was drawn to its end."""
    first = loader.epoch + (1 if loader.exhausted and loader.drawn_per_epoch[-1:] == (loader.drawn,) else 0)
    first -= len(loader.drawn_per_epoch)
    pairs = zip(
        loader.drawn_per_epoch, loader.exhausted_per_epoch or [True] * len(loader.drawn_per_epoch), strict=False
    )
    return {max(first, 0) + index: count for index, (count, exhausted) in enumerate(pairs) if exhausted}


def _uneven(
    case: Case, epoch: int, short: dict[int, int], longer: dict[int, LoaderFacts], most: int | None = None
) -> Finding:
    culprits = sorted(short)
    count = Counter(short.values()).most_common(1)[0][0]
    total = most if most is not None else max((loader.length or 0, loader.drawn) for loader in longer.values())[0]
    total = total or max(loader.drawn for loader in longer.values())
    first = case.ranks[culprits[0]]
    return Finding(
        "uneven-steps",
        Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} ran out of data: drew {count} of"
        f" {words.plural(max(total, count + 1), 'batch')} in epoch {epoch}{_left(first)}.",
        culprits=tuple(case.ranks[rank].culprit() for rank in culprits),
        victims=tuple(rank for rank in case.blocked if rank not in short),
        step=StepName(epoch, count, None),
        evidence=_counts(short, longer),
    )


def _left(view: RankView) -> str:
    return f" and {'has left the loop'}{words.at(view.where)}" if view.where is not None else ""


def _counts(short: dict[int, int], longer: dict[int, LoaderFacts]) -> tuple[str, ...]:
    few = [
        f"rank {rank} drew {words.plural(count, 'batch')}, then its loader was exhausted"
        for rank, count in short.items()
    ]
    many = [f"rank {rank} has drawn {words.plural(loader.drawn, 'batch')}" for rank, loader in longer.items()]
    return (*few[: words.SHOWN], *many[: words.SHOWN])


WITHIN: tuple[Rule, ...] = ()
BETWEEN: tuple[Rule, ...] = (uneven_steps,)
