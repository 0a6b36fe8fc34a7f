"""Where optimizer steps alone count the turns: what the totals of groups say of ranks that stand at one place.

A turn in which one of several models is trained once more makes one optimizer step more, and from then on the steps of
that rank have other numbers than those of the others. The totals of a group do not depend on that: where all hosts
stand at one place, a group of which all members made as many calls lacks none.
"""

from __future__ import annotations

from itertools import pairwise

from hangwatch.facts.call_site import Site, site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case, once
from hangwatch.model import Divergence
from hangwatch.ranks.device_waits import python_frames
from hangwatch.ranks.divergence import between_rounds
from hangwatch.ranks.ledger import Group
from hangwatch.ranks.sides import spread

ROUNDS = 3  # in which a rank took part without a step: a step more or less is a fault, and no other role


@once
def at_one_place(case: Case) -> bool:
    """All ranks stand in the same Python frames for a while, and their steps are not those of a loader."""
    frames = {python_frames(view) for view in case}
    still = all(view.steady and not view.dead and view.step.batch is None for view in case)
    return len(case.ranks) > 1 and still and len(frames) == 1 and bool(frames.pop())


@once
def steps_apart(case: Case) -> bool:
    """A rank with another role for a time made no optimizer steps, and took part in what all do: its steps are others.

    Calls of it from two places or more, each made again and again within one step, have the numbers of calls that
    others made in as many steps. In the step in which it stands it may repeat them, which is no other role.
    """
    steps = {view.step.step for view in case}
    known = [step for step in steps if step is not None]
    if any(view.step.batch is not None for view in case) or max(known, default=0) - min(known, default=0) < ROUNDS:
        return False
    return any(
        _took_part_without_steps(case, group, rank)
        for group in case.ledger.groups.values()
        if not group.silent and len(group.members) > 2
        for rank in spread(group.members)
    )


def _took_part_without_steps(case: Case, group: Group, rank: int) -> bool:
    made: dict[tuple[int | None, Site], list[int]] = {}
    for call in case.ledger.calls_in(rank, group.name):
        if (place := site(call)) is not None:
            made.setdefault((case.ledger.step_of(rank, call), place), []).append(call.seq)
    now, often = case.ranks[rank].step.step, dict[int | None, list[tuple[Site, list[int]]]]()
    for (step, place), numbers in made.items():
        if step != now and len(numbers) >= ROUNDS:
            often.setdefault(step, []).append((place, numbers))
    others = [other for other in spread(group.members) if other != rank]
    return any(
        len(places) > 1 and all(_in_as_many_steps(case, group, other, *each) for each in places)
        for places in often.values()
        for other in others
    )


def _in_as_many_steps(case: Case, group: Group, rank: int, place: Site, numbers: list[int]) -> bool:
    calls = [call for number in numbers if (call := case.ledger.call(rank, group.name, number)) is not None]
    steps = {case.ledger.step_of(rank, call) for call in calls}
    return len(steps) == len(calls) == len(numbers) and {site(call) for call in calls} == {place}


def is_level(case: Case, divergence: Divergence) -> bool:
    """Nothing is lacking in the group of `divergence`: other ranks made the same calls in another of their steps.

    What differs then is in another group. Where that is none, all are mispaired since a call that one of them left out.
    """
    group = case.ledger.groups.get((divergence.group, divergence.members))
    if group is None or not (at_one_place(case) and made_alike(group)):
        return False
    return any(not (each.silent or made_alike(each)) for each in case.ledger.groups.values())


@once
def between_rounds_of(case: Case) -> tuple[Divergence, ...]:
    """Differences of steps that have no calls in common: each rank makes as many as it likes between two rounds."""
    return tuple(each for each in case.divergences if _is_between_rounds(case, each))


def _is_between_rounds(case: Case, divergence: Divergence) -> bool:
    views = case.views(divergence.counts)
    readings = {view.rank: view.reading for view in views if view.reading is not None and view.reading.steps}
    return len(readings) == len(divergence.counts) and between_rounds(divergence, readings)


def may_follow(case: Case, divergence: Divergence) -> bool:
    """The ranks with fewer calls are a step further in a known call, by a way that no rank ever came.

    Another turn of one of several models makes a step of its own, ahead of what is due: that may follow.
    """
    sites, most = sites_of(case), max(divergence.counts.values())
    short = [case.ranks[rank] for rank, count in divergence.counts.items() if count < most and rank in case.ranks]
    others = [rank for rank, count in divergence.counts.items() if count == most]
    return bool(short) and all(
        _comes_by_another_way(case, view.rank)
        and _in_another_group(case, view.rank, divergence)
        and view.step.step == divergence.step + 1
        and sites.is_new_to_all(view.rank, others)
        for view in short
    )


def _comes_by_another_way(case: Case, rank: int) -> bool:
    """It made such a call from that very line before: a turn of its own is made again, and no first call of a kind."""
    now = sites_of(case).now(rank)
    return now is not None and any(place.lines[:1] == now.lines[:1] for place in sites_of(case).before(rank))


def _in_another_group(case: Case, rank: int, divergence: Divergence) -> bool:
    """What it lacks in its own group it can only have left out: its later calls there are mispaired."""
    entry = case.blocked.get(rank)
    return entry is not None and entry.group is not None and entry.group.name != divergence.group


def made_alike(group: Group) -> bool:
    """All members have issued as many calls."""
    return not group.silent and len({group.issued(rank) for rank in group.members}) == 1


def lacking_turns(case: Case, begun: dict[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks that made fewer steps before the call that all have come to, and those that made the most.

    The former made fewer calls in each other group as well: whole turns are lacking, and not one call.
    """
    most = max(begun.values(), default=0)
    short = tuple(rank for rank, steps in begun.items() if steps < most)
    last = {(entry.group.key, entry.seq) for entry in case.blocked.values() if entry.group is not None}
    if not (short and at_one_place(case)) or len(last) != 1 or len(begun) < len(case.ranks):
        return (), ()
    key = next(iter(last))[0]
    others = [group for group in case.ledger.groups.values() if group.key != key and set(group.members) & set(short)]
    if not others or not made_alike(case.ledger.groups[key]) or not all(_fewer(group, begun) for group in others):
        return (), ()
    return short, tuple(rank for rank, steps in begun.items() if steps == most)


def _fewer(group: Group, begun: dict[int, int]) -> bool:
    """Of its members, those that began fewer steps made fewer calls."""
    made: dict[int, set[int]] = {}
    for rank in group.heads:
        made.setdefault(begun.get(rank, 0), set()).add(group.issued(rank) or 0)
    rising = [made[steps] for steps in sorted(made)]
    return all(max(fewer) < min(more) for fewer, more in pairwise(rising))
