"""A call that one rank made more often than the others in one step, from lines that all of them call from."""

from __future__ import annotations

from collections import Counter

from hangwatch import words
from hangwatch.facts.call_site import Site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.facts.differences.parting import Left, Parting, parting
from hangwatch.model import Frame
from hangwatch.ranks.sides import spread
from hangwatch.stacks.frames import origin, user_frame


def repeated_by_few(case: Case) -> tuple[Parting, str] | None:
    """The first step in which the numbers of calls differ, and the call that few ranks repeated in it."""
    found = parting(case)
    if found is None or not made_by_few(case, found):
        return None
    rank = found.who[0]
    if way_of_its_own(case, found, rank) is not None:
        return None
    call = _repeated(case, found, rank)
    return (found, call) if call else None


def made_by_few(case: Case, found: Parting) -> bool:
    """At most half of the ranks made calls too many there."""
    few = 2 * len(found.who) <= len(found.divergence.counts) and case.ranks.keys() >= set(found.who)
    return found.how is Left.EXTRA and bool(found.who) and few


def stands_in_it(case: Case, found: Parting, rank: int) -> bool:
    """It is in that step still, and in the group in question: not in the call of another group behind that one."""
    last = next(reversed(case.ledger.calls(rank).values()), None)
    entry = case.blocked.get(rank)
    group = entry.group.name if entry is not None and entry.group is not None else last.group if last else ""
    return found.divergence.step == case.ranks[rank].step.step and group in ("", found.divergence.group)


def way_of_its_own(case: Case, found: Parting, rank: int) -> Frame | None:
    """The line by which `rank` alone came to the call in question, above the line of a helper that others use too.

    What backward computes again is called from a line that leads to all gradients: that line says nothing.
    """
    sites, others = sites_of(case), [other for other in case.ranks if other not in found.all_who]
    if stands_in_it(case, found, rank):
        return sites.apart(rank, others)
    if len(found.places) != 1 or sites.in_backward(rank, found.places[0]):
        return None
    return sites.apart(rank, others, found.places[0])


def _repeated(case: Case, found: Parting, rank: int) -> str:
    """What `rank` called too often in that step, where all of it comes from lines that others use too; else ""."""
    counts, sites = found.divergence.counts, sites_of(case)
    other = min(counts, key=lambda each: counts[each])
    mine, theirs = (sites.inside(each, found.divergence.group, found.divergence.step) for each in (rank, other))
    if theirs is None or mine is None or not found.divergence.exact:
        return ""
    surplus = _by_line(mine[0]) - _by_line(theirs[0])
    alike = surplus.total() == counts[rank] - counts[other] and surplus.keys() <= _by_line(theirs[0]).keys()
    if not surplus or not alike:
        return ""
    return words.listed([sites.named(rank, *each) for each in surplus.items()][: words.SHOWN])


def _by_line(places: Counter[Site]) -> Counter[Site]:
    """The same, by the innermost of the user's lines, and what lies between it and torch."""
    found: Counter[Site] = Counter()
    for place, times in places.items():
        found[place._replace(lines=place.lines[:1])] += times
    return found


def package_line(case: Case, rank: int) -> Frame | None:
    """The innermost line of a package on the way to the call of `rank` from where no other rank has ever called.

    Only where another rank waits below the same line of the user's: else that line says more.
    """
    entry, others = case.blocked.get(rank), [other for other in case.ranks if other != rank]
    there = {each.where for other, each in case.blocked.items() if other != rank}
    if entry is None or entry.call is None or entry.where not in there:
        return None
    known = {
        frame.source_line
        for other in spread(others)
        for call in case.ledger.calls(other).values()
        for frame in call.frames
    }
    user = user_frame(entry.call.frames)
    inner = entry.call.frames[: entry.call.frames.index(user)] if user is not None else ()
    return next((f for f in inner if origin(f.file) == "package" and f.source_line not in known), None)
