"""A call that ranks made under different numbers: those with the lower one have left out calls before it.

The board records the calls of Python code, and only counts those of C++ code, such as DDP's gradients. So a call that
all ranks make shows by its number how many came before it, also on ranks that have ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.call_site import site
from hangwatch.facts.calls.mismatches import alike
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective
from hangwatch.ranks.ledger import Group


@dataclass(frozen=True)
class Shifted:
    """`ranks` made `call` as its number in the group, the `others` `missing` numbers later."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    group: Group
    call: Collective
    missing: int


@once
def shifted(case: Case) -> Shifted | None:
    """The newest call that all members made, where its number was the same on all before, and now is not."""
    found = (_in(case, group) for group in case.ledger.groups.values() if len(group.members) > 1)
    return next((each for each in found if each is not None), None)


def _in(case: Case, group: Group) -> Shifted | None:
    calls = {rank: case.ledger.calls_in(rank, group.name) for rank in group.members}
    newest = {rank: max(made, key=lambda call: call.seq) for rank, made in calls.items() if made}
    if len(newest) < len(group.members) or len({call.seq for call in newest.values()}) != 2:
        return None
    low = min(newest, key=lambda rank: newest[rank].seq)
    call, high = newest[low], max(each.seq for each in newest.values())
    if site(call) is None or not all(alike(call, each) for each in newest.values()):
        return None
    if not all(_same_before(call, calls[low], calls[rank]) for rank in newest if rank != low):
        return None
    short = tuple(rank for rank, each in newest.items() if each.seq == call.seq)
    others = tuple(rank for rank in newest if rank not in short)
    return Shifted(short, others, group, call, high - call.seq)


def _same_before(call: Collective, one: list[Collective], other: list[Collective]) -> bool:
    """The call before it from the same place had one number on both, where the records have one; nothing else came."""
    mine, theirs = (sorted(each.seq for each in made if alike(each, call))[:-1] for made in (one, other))
    return bool(mine) and bool(theirs) and mine[-1] == theirs[-1]
