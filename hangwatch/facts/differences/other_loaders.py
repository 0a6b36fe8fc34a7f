"""Loaders besides the training one (validation, test) from which ranks drew different numbers of batches.

Ranks may be in the loop over such a loader still. If it was exhausted on every rank, nothing shows it any more but the
counts: where the ranks that drew more batches also issued more collectives, in the first step that differs, the one
explains the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import Uneven
from hangwatch.facts.data.drawn import Drawn, drawn_by_epoch
from hangwatch.facts.differences.parting import parting
from hangwatch.model import Divergence, LoaderFacts
from hangwatch.ranks.view import RankView


@once
def uneven_elsewhere(case: Case) -> tuple[Uneven, LoaderFacts] | None:
    """The first epoch of another loader with different counts that go with the first difference of the ledgers."""
    found = parting(case)
    if found is None or not found.divergence.exact:
        return None
    for loaders in _shared(case, found.divergence):
        drawn = _first_unequal({rank: drawn_by_epoch(loader) for rank, loader in loaders.items()})
        if drawn is not None and _go_together(found.divergence, drawn[1]):
            most = max(each.count for each in drawn[1].values())
            short = tuple(sorted(rank for rank, each in drawn[1].items() if each.count < most))
            return Uneven(drawn[0], drawn[1], short), loaders[short[0]]
    return None


@once
def uneven_still(case: Case) -> tuple[Uneven, LoaderFacts] | None:
    """Ranks exhausted another loader, with that of the first of them, in whose loop all the others still are."""
    for index in _indices(case):
        loaders = {view.rank: each for view in case for each in other_loaders(view) if each.index == index}
        epoch = max((loader.epoch for loader in loaders.values()), default=-1)
        tables = {rank: drawn_by_epoch(each, failed=case.ranks[rank].failed) for rank, each in loaders.items()}
        drawn = {rank: table[epoch] for rank, table in tables.items() if epoch in table}
        short = tuple(sorted(rank for rank, entry in drawn.items() if entry.exhausted))
        longer = [entry for entry in drawn.values() if not entry.ended]
        if short and longer and len(short) + len(longer) == len(drawn) == len(case.ranks):
            uneven = Uneven(epoch, drawn, short)
            if uneven.fewest < min(entry.count for entry in longer):
                return uneven, loaders[short[0]]
    return None


def _indices(views: Iterable[RankView]) -> list[int]:
    return sorted({loader.index for view in views for loader in other_loaders(view)})


def other_loaders(view: RankView) -> tuple[LoaderFacts, ...]:
    """The loaders of a rank besides the one that it trains on."""
    return tuple(each for each in view.loaders if not each.training)


def _shared(case: Case, divergence: Divergence) -> Iterator[dict[int, LoaderFacts]]:
    """The other loaders that all ranks in question have, one after another."""
    views = case.views(divergence.counts)
    for index in _indices(views):
        found = {view.rank: each for view in views for each in other_loaders(view) if each.index == index}
        if found.keys() == divergence.counts.keys() and not _is_shifted(views, found):
            yield found


def _is_shifted(views: Iterable[RankView], found: Mapping[int, LoaderFacts]) -> bool:
    """Loaders are numbered as they are used: a rank that used one more has that of the others under a later number."""
    unlike = {_size(each) for each in found.values()}
    later = {_size(each) for view in views for each in other_loaders(view) if each.index > found[view.rank].index}
    return len(unlike) > 1 and not unlike.isdisjoint(later)


def _size(loader: LoaderFacts) -> tuple[int | None, ...]:
    return loader.length, loader.dataset_length, loader.batch_size


def _first_unequal(tables: Mapping[int, Mapping[int, Drawn]]) -> tuple[int, dict[int, Drawn]] | None:
    """The first epoch that all know, in which they drew different numbers; all of them must have come to its end."""
    for epoch in sorted(set.intersection(*(set(table) for table in tables.values()))):
        drawn = {rank: table[epoch] for rank, table in tables.items()}
        if len({each.count for each in drawn.values()}) > 1:
            return (epoch, drawn) if all(each.exhausted for each in drawn.values()) else None
    return None


def _go_together(divergence: Divergence, drawn: Mapping[int, Drawn]) -> bool:
    """More batches on a rank, more collectives; as many batches, as many collectives."""
    pairs = sorted({(drawn[rank].count, count) for rank, count in divergence.counts.items()})
    batches, collectives = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return len(set(batches)) == len(pairs) and sorted(set(collectives)) == collectives
