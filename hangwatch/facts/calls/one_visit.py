"""Calls of one visit to a place, which the other ranks did not make there: they are no habit of their rank."""

from __future__ import annotations

from hangwatch.facts.call_site import Site, same, site
from hangwatch.facts.case import Case
from hangwatch.model import Collective


def of_one_visit(case: Case, rank: int, place: Site) -> bool:
    """All calls of `rank` from `place` are of its present step, and another rank made each of them from elsewhere."""
    step, made = case.ranks[rank].step.step, case.ledger.calls(rank).values()
    calls = [call for call in made if (found := site(call)) is not None and same(found, place)]
    return bool(calls) and all(
        step is not None and call.step == step and _met_another(case, rank, call) for call in calls
    )


def _met_another(case: Case, rank: int, call: Collective) -> bool:
    """Another member made that number of the group from another place."""
    here, group = site(call), case.ledger.group(rank, call.group)
    members = group.members if group is not None else ()
    others = case.ledger.under(call.group, call.seq, (other for other in members if other != rank))
    places = [there for other in others.values() if (there := site(other)) is not None]
    return here is not None and any(not same(here, there) for there in places)
