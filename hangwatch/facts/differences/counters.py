"""Calls that come every so many turns, to which the ranks came in different steps: their counters of turns differ.

A condition such as `step % LOG_EVERY == 0` comes out alike at the same count, so that no rank decided anything there. A
rank that leaves out the step of a turn counts the turn all the same, and is at such a call a step early, as steps are
numbered. A counter may also begin elsewhere on one rank, as that of a checkpoint that only it has read.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hangwatch.facts.call_site import Site
from hangwatch.facts.calls.by_logging import logged_at
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import every_so_many_turns, ways_past
from hangwatch.facts.case import Case, once
from hangwatch.facts.differences.parting import Parting, parting, two_sides
from hangwatch.model import Bypass
from hangwatch.ranks.sides import spread

_TIMES = 3  # that the call came before at equal intervals; 2 where the first of them fits a count from the first step


@dataclass(frozen=True)
class CountsApart:
    """In the step of `found` the ranks `made` came to a call by the condition `way`, and those `without` did not.

    Before, it came every `interval` steps on all of them, last in step `last`; 0 and None where no interval shows.
    `ways` lead past the call in which those `without` stand, in one turn of the loop.
    """

    found: Parting
    made: tuple[int, ...]
    without: tuple[int, ...]
    call: str
    way: Bypass
    interval: int
    last: int | None
    ways: tuple[Bypass, ...]
    first: bool  # no rank has made that call before: the records go back to the first step

    @property
    def began_apart(self) -> bool:
        """The source shows no turn without its step, and the call is the first of its kind."""
        return self.first and not self.ways

    @property
    def short(self) -> int:
        """How many steps fewer than ever the ranks `made` have made since."""
        after = (self.found.step.step or 0) - self.last if self.last is not None else 0
        return self.interval - after if 0 < after < self.interval else 0


@once
def counts_apart(case: Case) -> CountsApart | None:
    """The first difference between the ledgers, if the call in question is one of every so many turns."""
    found = parting(case)
    sides = two_sides(case, found.divergence) if found is not None and found.divergence.exact else None
    if found is None or sides is None or len(found.places) != 1:
        return None
    (without, made), (place,) = sides, found.places
    now = sites_of(case).now(without[0])
    ways = ways_past(case, now) if now is not None else ()
    guards = every_so_many_turns(case, place.lines, ways)
    if any(place in sites_of(case).in_step(rank, found.divergence.step) for rank in without):
        return None  # these came by the condition in that step as well, and then made fewer of its calls
    if not guards or logged_at(case, made[0], place.lines) is not None:
        return None
    before = _steps_before(case, (*made, *without), place, found.divergence.step)
    interval, last = _interval(before)
    return CountsApart(
        found,
        made,
        without,
        sites_of(case).named(made[0], place),
        guards[0],
        interval,
        last,
        ways,
        before == {()} and all(sites_of(case).remembers(rank) for rank in spread((*made, *without))),
    )


def _steps_before(case: Case, ranks: tuple[int, ...], place: Site, before: int) -> set[tuple[int, ...]]:
    """The steps in which `ranks` called from `place` until then: one row where they are the same on all of them."""
    rows = set()
    for rank in spread(ranks):
        made = sites_of(case).by_step(rank).items()
        rows.add(tuple(sorted(step for step, places in made if step < before and place in places)))
    return rows


def _interval(rows: set[tuple[int, ...]]) -> tuple[int, int | None]:
    """Every how many steps all ranks made the call, and in which step they did last; 0 and None where that differs."""
    steps = next(iter(rows)) if len(rows) == 1 else ()
    gaps = {after - one for one, after in pairwise(steps)}
    if len(gaps) != 1:
        return 0, None
    gap = gaps.pop()
    shown = len(steps) >= _TIMES or steps[0] in (0, gap - 1)
    return (gap, steps[-1]) if shown else (0, None)
