"""A call left out, found by the order of call sites: where sequence numbers are equal, the call paths show it."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.facts.call_site import Site
from hangwatch.facts.call_sites import Sites, sites_of
from hangwatch.facts.case import Case
from hangwatch.facts.caught_errors import caught_in_backward
from hangwatch.facts.skip_paths import evidence_of, skip_path, the_only, ways_past
from hangwatch.facts.unreduced import has_called_backward
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Frame
from hangwatch.ranks.sides import spread
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.data_dependent_graph import left_out_of_backward


def skipped_by_site(case: Case) -> Finding | None:
    """All are in the same step with equal numbers, but some stand in a call that comes after the one of the others."""
    sites = sites_of(case)
    places = {rank: place for rank in case.blocked if (place := sites.now(rank)) is not None}
    steps = {case.ranks[rank].step.step for rank in places}
    if len(places) < 2 or len(set(places.values())) != 2 or len(steps) != 1 or None in steps:
        return None  # where nothing counts turns of the loop, a rank at the other call may be a turn ahead
    order = _in_order(case, sites, places)
    if order is None or order[0][1][:1] == order[1][1][:1]:
        return None  # from one line of the user's, as below a trainer's `fit`: which of two calls it is cannot be said
    skipped, reached = order
    ahead = _may_have_skipped(case, places, skipped, reached)
    if not ahead or any(sites.made_as_often_as_ever(rank, skipped) for rank in ahead):
        return None
    first, second = words.place(Frame(*skipped.lines[0], "")), words.place(Frame(*reached.lines[0], ""))
    due = [rank for rank, place in places.items() if place == skipped]
    outvoted = 2 * len(due) > len(places) == len(case.ranks) and _of_one_group(case, places)
    behind = due[0]
    ways = ways_past(case, skipped)
    by_epoch = not any(sites.due(rank, skipped) for rank in places) and sites.ends_epochs(behind, skipped)
    order_kept = (
        f"at the end of the epoch before, all ranks called from {first}, before {second}"
        if by_epoch
        else f"by the order of all earlier steps, {first} comes before {second} in this one"
    )
    witnesses = [Witness(Kind.HABIT, order_kept)]
    if outvoted:
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks are in the earlier call: {case.name(due)}"))
    if not ways and sites.in_backward(behind, skipped) and _called_backward(case, ahead):
        return left_out_of_backward(case, ahead, skipped, reached, tuple(witnesses))
    return Finding(
        "skipped-collective",
        Certainty.LIKELY if by_epoch else case.weigh(witnesses),  # once is no habit
        f"{case.name(ahead, capital=True)} skipped {sites.named(behind, skipped)} in"
        f" {words.step(case.ranks[ahead[0]].step) or 'this step'}{skip_path(ways)}, and"
        f" {words.verb(len(ahead), 'is', 'are')} in the next call already ({second}).",
        culprits=case.culprits(ahead, the_only(ways)),
        step=case.ranks[ahead[0]].step,
        evidence=evidence_of(ways),
        witnesses=tuple(witnesses),
        awaited=ahead,
    )


def _called_backward(case: Case, ranks: Iterable[int]) -> bool:
    """They have in the step in which they are: the call was left out of that backward, and not with it."""
    return all(
        has_called_backward(view, view.step.step or 0) and caught_in_backward(view, view.step.step) is None
        for view in case.views(ranks)
    )


def _of_one_group(case: Case, ranks: Iterable[int]) -> bool:
    """They wait in one group. A call of another group may still come: its order with this one may have changed."""
    return len({id(case.blocked[rank].group) for rank in ranks}) == 1


def _may_have_skipped(case: Case, places: dict[int, Site], skipped: Site, reached: Site) -> tuple[int, ...]:
    """Those ahead for which the ranks at the skipped call wait; the rest have completed it in groups of their own."""
    ahead = {rank for rank, place in places.items() if place == reached}
    behind = [case.blocked[rank] for rank, place in places.items() if place == skipped]
    absent = {rank for entry in behind if entry.need is not None for rank in entry.need.absent}
    if any(entry.group is None for entry in behind):
        return tuple(sorted(ahead & absent or ahead))
    members = {rank for entry in behind if entry.group is not None for rank in entry.group.members}
    return tuple(sorted(ahead & absent or ahead & members))


def skipped_by_order(case: Case) -> Finding | None:
    """One rank alone came to its call from another one than ever: it has left out the one between."""
    sites = sites_of(case)
    awaited = {rank for entry in case.blocked.values() if entry.need is not None for rank in entry.need.absent}
    asked = spread(sorted(awaited & case.blocked.keys()))
    found = {rank: jump for rank in asked if (jump := sites.jumped(rank)) is not None}
    if len(found) != 1:
        return None
    (rank, (left_out, here)), view = next(iter(found.items())), case.ranks[next(iter(found))]
    if left_out.lines[:1] == here.lines[:1]:
        return None  # from one line of the user's, as below a trainer's `fit`: which of two calls it is cannot be said
    first, second = words.place(Frame(*left_out.lines[0], "")), words.place(Frame(*here.lines[0], ""))
    when = words.in_step(view.step)
    ways = ways_past(case, left_out)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"Rank {rank} skipped {sites.named(rank, left_out)}{when}{skip_path(ways)}, and is in the next call"
        f" already ({second}).",
        culprits=(view.culprit(the_only(ways)),),
        step=view.step,
        evidence=(
            f"on rank {rank}, every earlier call at {second} came right after one at {first}",
            *evidence_of(ways),
        ),
        awaited=(rank,),
    )


def _in_order(case: Case, sites: Sites, places: dict[int, Site]) -> tuple[Site, Site] | None:
    """The two sites as (the one that was due, the one that comes after it); None where the past does not say."""
    found = []
    one, other = sorted(set(places.values()))
    for earlier, later in ((one, other), (other, one)):
        there = [rank for rank, place in places.items() if place == later]
        followed = all(_follows(case, rank, earlier, later) for rank in there)
        rhythm = all(sites.due(rank, earlier) for rank in places)
        due = (rhythm or all(sites.ends_epochs(rank, earlier) for rank in places)) and all(map(sites.regular, there))
        if followed or (due and all(sites.precedes(rank, earlier, later) for rank in there)):
            found.append((earlier, later))
    return found[0] if len(found) == 1 else None


def _follows(case: Case, rank: int, earlier: Site, later: Site) -> bool:
    """In the earlier steps of `rank`, each call at `later` came right after one at `earlier` in the same step.

    Across the end of a step every call follows every other one: the loop repeats.
    """
    now = case.ranks[rank].step.step
    past = [places for step, places in sites_of(case).by_step(rank).items() if step != now]
    before = [places[i - 1] if i else None for places in past for i, place in enumerate(places) if place == later]
    return len(before) >= 2 and all(place == earlier for place in before)
