"""Steps that hold several turns of a loop: a rank that ended none of them has left nothing out."""

from __future__ import annotations

from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.model import Divergence
from hangwatch.ranks.ledger import all_complete


def counted_late(case: Case, divergence: Divergence) -> bool:
    """No call is missing: a step of one rank holds several turns of the loop, for the rank ended none of them.

    Steps without a DataLoader end in optimizer.step(). A rank that omits one makes all calls of two turns in one step,
    and the others make just as many, in two steps: all are complete, or there are several kinds, each twice.
    """
    if divergence.epoch is not None or not several_turns(case, divergence):
        return False
    group = case.ledger.group(divergence.more[0], divergence.group)
    heads = group.heads if group is not None else {}
    known = [heads[rank] for rank in divergence.counts if rank in heads]
    kinds = sites_of(case).inside(divergence.more[0], divergence.group, divergence.step)
    return (len(known) == len(divergence.counts) and all_complete(known)) or (kinds is not None and len(kinds[0]) > 1)


def several_turns(case: Case, divergence: Divergence) -> bool:
    """Those with more calls than usual made exactly what the others make in a turn, twice or three times in a row.

    In their order: a call that is repeated within a turn comes before what follows it there.
    """
    if divergence.short or not divergence.more or not divergence.exact:
        return False
    sites = sites_of(case)
    fewest = min(divergence.counts, key=lambda rank: divergence.counts[rank])
    usual = sites.sequence(fewest, divergence.group, divergence.step)
    for rank in divergence.more:
        long = sites.sequence(rank, divergence.group, divergence.step)
        times, rest = divmod(divergence.counts[rank], max(divergence.counts[fewest], 1))
        if not long or not usual or times < 2 or rest or long != usual * times:
            return False
    return True
