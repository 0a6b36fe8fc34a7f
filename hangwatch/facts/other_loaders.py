"""Loaders besides the training one (validation, test) from which ranks drew different numbers of batches.

Each of them was exhausted on every rank, so that nothing shows it any more but the counts. Where the ranks that drew
more batches also issued more collectives, in the first step that differs, the one explains the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hangwatch.facts.batches import Uneven
from hangwatch.facts.case import Case, once
from hangwatch.facts.drawn import Drawn, drawn_by_epoch
from hangwatch.facts.parting import parting
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


def other_loaders(view: RankView) -> tuple[LoaderFacts, ...]:
    """The loaders of a rank besides the one that it trains on."""
    return tuple(each for each in (view.reading.loaders if view.reading is not None else ()) if not each.training)


def _shared(case: Case, divergence: Divergence) -> Iterator[dict[int, LoaderFacts]]:
    """The other loaders that all ranks in question have, one after another."""
    views = case.views(divergence.counts)
    for index in sorted({each.index for view in views for each in other_loaders(view)}):
        found = {view.rank: each for view in views for each in other_loaders(view) if each.index == index}
        if found.keys() == divergence.counts.keys():
            yield found


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
