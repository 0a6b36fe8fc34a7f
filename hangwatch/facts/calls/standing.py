"""Where the ranks that wait stand: at each call site those that are in its call."""

from __future__ import annotations

from hangwatch.facts.call_site import Site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case, once


@once
def by_site(case: Case) -> dict[Site, list[int]]:
    """The ranks that wait at each call site; without those of which none is on record."""
    found: dict[Site, list[int]] = {}
    for rank in case.blocked:
        if (place := sites_of(case).now(rank)) is not None:
            found.setdefault(place, []).append(rank)
    return found
