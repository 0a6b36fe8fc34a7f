"""A call that ranks left out, by the order of call sites: where sequence numbers are equal, call paths show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, pairwise

from hangwatch import words
from hangwatch.facts.call_site import Site
from hangwatch.facts.calls.call_sites import Sites, sites_of
from hangwatch.facts.calls.inner_loops import loop_of, outer_loop
from hangwatch.facts.calls.skip_paths import ways_past
from hangwatch.facts.case import Case, once
from hangwatch.facts.differences.caught_errors import caught_in_backward
from hangwatch.facts.differences.parts_of_turn import ways_in_turn
from hangwatch.facts.differences.unreduced import has_called_backward
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Frame, LoopFacts
from hangwatch.ranks.sides import spread


@dataclass(frozen=True)
class LeftOut:
    """The ranks `ahead` stand in the call at `reached`, which comes after the one at `skipped`, where those `due` wait.

    `by_epoch` says that the order is that of the end of the epoch before; `outvoted` that most ranks of the group are
    at the earlier call. `of_a_backward`: those ahead had called that backward, and left the call out of it. `lines` are
    the innermost lines of the two places that differ. `loop` is a loop within a step around the skipped place, where
    those ahead came to theirs as ever, from its last turn or in it: they lack no call of a turn, but all of them.
    """

    ahead: tuple[int, ...]
    due: tuple[int, ...]
    skipped: Site
    reached: Site
    by_epoch: bool
    outvoted: bool
    of_a_backward: bool
    lines: tuple[Frame, Frame]
    loop: LoopFacts | None = None


@once
def left_out(case: Case) -> LeftOut | None:
    """All are in the same step with equal numbers, but some stand in a call that comes after the one of the others."""
    sites = sites_of(case)
    places = {rank: place for rank in case.blocked if (place := sites.now(rank)) is not None}
    steps = {case.ranks[rank].step.step for rank in places}
    if len(places) < 2 or len(set(places.values())) != 2 or len(steps) != 1 or None in steps:
        return None  # where nothing counts turns of the loop, a rank at the other call may be a turn ahead
    order = _in_order(case, sites, places)
    lines = told_apart(*order) if order is not None else None
    if order is None or lines is None:
        return None  # from the same lines, as below a trainer's `fit`: which of two calls it is cannot be said
    skipped, reached = order
    ahead = _may_have_skipped(case, places, skipped, reached)
    if not ahead or any(sites.made_as_often_as_ever(rank, skipped) for rank in ahead):
        return None
    due = tuple(rank for rank, place in places.items() if place == skipped)
    loop = loop_of(case, reached.lines)
    if (
        loop is not None
        and _may_be_passed(case, reached, loop)
        and all(_passed(case, rank, skipped, reached) for rank in spread(due))
    ):
        return None  # they are a turn of that loop ahead, in which they lack the call of the others
    return LeftOut(
        ahead,
        due,
        skipped,
        reached,
        by_epoch=not any(sites.due(rank, skipped) for rank in places) and sites.ends_epochs(due[0], skipped),
        outvoted=2 * len(due) > len(places) == len(case.ranks) and _of_one_group(case, places),
        of_a_backward=_of_a_backward(case, due[0], skipped, ahead),
        lines=lines,
        loop=_loop_of_turns(case, ahead, skipped, reached),
    )


def witnesses_of(case: Case, found: LeftOut) -> tuple[Witness, ...]:
    """What speaks for that order."""
    first, second = map(words.place, found.lines)
    order = (
        f"at the end of the epoch before, all ranks called from {first}, before {second}"
        if found.by_epoch
        else f"by the order of all earlier steps, {first} comes before {second} in this one"
    )
    most = Witness(Kind.MAJORITY, f"most ranks are in the earlier call: {case.name(found.due)}")
    return Witness(Kind.HABIT, order), *((most,) if found.outvoted else ())


def _loop_of_turns(case: Case, ahead: tuple[int, ...], skipped: Site, reached: Site) -> LoopFacts | None:
    one, other = (loop_of(case, place.lines) for place in (skipped, reached))
    if one is None:
        return None
    if _may_be_passed(case, skipped, one):
        return None  # a turn may have gone on without that call
    asked = spread(ahead)
    if not all(_came_as_ever(case, rank, reached) for rank in asked):
        return None
    if other is not None and one.where == other.where:
        return one
    around = (other.where, *other.outer) if other is not None else ()
    within = [where for where in (one.where, *one.outer)[:-1] if where not in around]  # the last is over the steps
    again = all(skipped in sites_of(case).in_step(rank, case.ranks[rank].step.step) for rank in asked)
    return outer_loop(one, within[-1]) if within and again else None


def _may_be_passed(case: Case, place: Site, loop: LoopFacts) -> bool:
    """The source shows how a turn of the loop goes on without that call, other than by the end of the loop."""
    leaves = {*loop.leaves, *chain.from_iterable(loop.outer_leaves)}
    return any(way.inner and way.where not in leaves for way in ways_past(case, place))


def _passed(case: Case, rank: int, first: Site, last: Site) -> bool:
    """In this step the rank came from a call at `first` to the next one there, and made none at `last` between them."""
    places = sites_of(case).in_step(rank, case.ranks[rank].step.step)
    turns = [at for at, place in enumerate(places) if place == first]
    return len(turns) > 1 and last not in places[turns[-2] : turns[-1]]


def _came_as_ever(case: Case, rank: int, reached: Site) -> bool:
    """It came to that place from a call from which it has come there in an earlier step, too."""
    past = [pair for places in sites_of(case).earlier_steps(rank).values() for pair in pairwise(places)]
    here = sites_of(case).in_step(rank, case.ranks[rank].step.step)
    last = next((place for place in reversed(here) if place != reached), None)
    return (last, reached) in past


def told_apart(one: Site, other: Site) -> tuple[Frame, Frame] | None:
    """The innermost lines that differ: a helper that is called from two lines makes the calls of both.

    None where none does. Of a rank that has ended fewer lines may be known.
    """
    pairs = zip(one.lines, other.lines, strict=False)
    return next(((Frame(*here, ""), Frame(*there, "")) for here, there in pairs if here != there), None)


def _of_a_backward(case: Case, behind: int, skipped: Site, ahead: tuple[int, ...]) -> bool:
    called = sites_of(case).in_backward(behind, skipped) and _called_backward(case, ahead)
    return called and not ways_in_turn(case, skipped, 1)


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
    past = sites_of(case).earlier_steps(rank).values()
    before = [places[i - 1] if i else None for places in past for i, place in enumerate(places) if place == later]
    return len(before) >= 2 and all(place == earlier for place in before)
