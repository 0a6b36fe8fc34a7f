"""Where the ranks that wait stand: at each call site those that are in its call."""

from __future__ import annotations

from typing import NamedTuple

from hangwatch.facts.call_site import Site, chosen_at_one_line
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import of_one_condition
from hangwatch.facts.case import Case, once
from hangwatch.model import Frame


class Standing(NamedTuple):
    """A rank in a call, or that made one: the call site, and the frames that lead to it."""

    rank: int
    place: Site | None
    frames: tuple[Frame, ...]


@once
def by_site(case: Case) -> dict[Site, list[int]]:
    """The ranks that wait at each call site; without those of which none is on record."""
    found: dict[Site, list[int]] = {}
    for rank in case.blocked:
        if (place := sites_of(case).now(rank)) is not None:
            found.setdefault(place, []).append(rank)
    return found


def on_two_branches(case: Case, one: Standing, other: Standing) -> bool:
    """A condition, or a line that calls what a value names, led each of them to its own call.

    Such a line may as well call several functions in turn: where one of them is called in each step, it does.
    """
    if of_one_condition(case, one.place, other.place):
        return True
    return chosen_at_one_line(one.frames, other.frames) and sites_of(case).regular(other.rank) is False
