"""A call that a rank made in another group than ever before from that line: it took the wrong group there.

The first step in which the ledgers of a group differ shows the call; the rank's other groups show where the line had
led until then.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hangwatch.facts.call_site import Site, site
from hangwatch.facts.calls.call_sites import HABIT
from hangwatch.facts.case import Case, once
from hangwatch.facts.differences.parting import Parting, parting, two_sides


@dataclass(frozen=True)
class Astray:
    """`ranks` called from `place` in the group of `found`, and in the group `usual` (by its name) every time before."""

    ranks: tuple[int, ...]
    place: Site
    usual: str
    found: Parting


@once
def astray(case: Case) -> Astray | None:
    """The call of another group, where it is the whole difference between the ranks in that step."""
    found = parting(case)
    sides = two_sides(case, found.divergence) if found is not None and found.divergence.exact else None
    if found is None or sides is None or len(found.places) != 1:
        return None
    ranks, place = sides[1], found.places[0]
    usual = {_usual(case, rank, place, found) for rank in ranks}
    name = usual.pop() if len(usual) == 1 else None
    return Astray(ranks, place, name, found) if name is not None else None


def _usual(case: Case, rank: int, place: Site, found: Parting) -> str | None:
    """The one other group in which `rank` had called from `place`, often enough; None where there is no such group."""
    if rank not in case.ranks:
        return None
    made = [call for call in case.ledger.calls(rank).values() if site(call) == place]
    step = found.divergence.step
    steps = [(when, call.group) for call in made if (when := case.ledger.step_of(rank, call)) is not None]
    before = Counter(group for when, group in steps if when < step)
    name = next(iter(before), None)
    if (step, name) in steps:
        return None  # it made its usual call in that step as well: this one is an added call
    return name if len(before) == 1 and name != found.divergence.group and before.total() >= HABIT else None
