"""The one rank that waits in a call of its own while the others wait elsewhere, where nothing else explains it."""

from __future__ import annotations

from collections import Counter

from hangwatch.facts.call_site import (
    NOT_KNOWN,
    at_the_end_of_its_block,
    in_backward,
    path,
    recorded_caller,
    same,
    site,
)
from hangwatch.facts.calls.call_sites import HABIT, Sites, sites_of
from hangwatch.facts.calls.standing import Standing, on_two_branches
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import first_uneven, has_left_inner_loop, has_left_loop
from hangwatch.facts.loops.passed_call_site import is_past_a_call
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.view import RankView

from .with_a_message import alone_with_a_message


def alone_now(case: Case) -> RankView | None:
    """The one rank that waits at a call site that no rank has ever used, in a loop that it has not left.

    Ranks that wait for each other in a circle are looked at by themselves: the others wait because of them.
    """
    places = {rank: sites_of(case).now(rank) or entry.where for rank, entry in case.blocked.items()}
    crowd = Counter(places.values())
    by_themselves = [rank for rank, place in places.items() if crowd[place] == 1]
    by_themselves = [rank for rank in by_themselves if not _comes_by_another_path(case, rank)]
    lone = _alone_among(case, list(case.blocked), by_themselves) or _alone_in_a_circle(case)
    return lone or alone_with_a_message(case)


def _alone_in_a_circle(case: Case) -> RankView | None:
    """Each rank of it waits in another group, if from one line, and none beside the circle waits in its very call.

    Messages that cross say more of themselves.
    """
    circle = list(case.graph.cycle(case.deadlocked))
    messages = any(case.blocked[rank].to_a_peer for rank in circle)
    asked = [rank for rank in circle if not (_comes_by_another_path(case, rank) or _has_company(case, rank, circle))]
    return None if messages else _alone_among(case, circle, asked)


def _has_company(case: Case, rank: int, circle: list[int]) -> bool:
    mine = case.blocked[rank]
    beside = (each for other, each in case.blocked.items() if other not in circle and each.where == mine.where)
    return mine.group is not None and any(each.group is mine.group and each.seq == mine.seq for each in beside)


def _comes_by_another_path(case: Case, rank: int) -> bool:
    """It made its call before, in a group where no other rank waits, and other lines led to it: it has its turns."""
    entry = case.blocked[rank]
    call = entry.call if case.ranks[rank].now.guard != "rank" else None
    made = recorded_caller(call) if call is not None else None
    others = (each for each in case.blocked.values() if each is not entry)
    if call is None or made is None or any(each.group is entry.group for each in others):
        return False
    earlier = (each for each in case.ledger.calls_in(rank, call.group) if each.seq < call.seq and each.op == call.op)
    return sum(recorded_caller(each) == made for each in earlier) >= HABIT


def _alone_among(case: Case, ranks: list[int], asked: list[int]) -> RankView | None:
    sites = sites_of(case)
    uneven = first_uneven(case)
    short = uneven.short if uneven is not None else ()
    loners = [
        rank
        for rank in asked
        if _stands_in_its_call(case.blocked[rank])
        and not case.blocked[rank].to_a_peer
        and rank not in short
        and (sites.regular(rank) is False or _in_its_first_call_alone(case, rank, _without(ranks, rank)))
        and not sites.shared(rank, _without(ranks, rank))
    ]
    if len(loners) > 1:
        loners = [rank for rank in loners if case.blocked[rank].activity.in_collective] or loners
    if len(loners) > 1:
        loners = [rank for rank in loners if case.ranks[rank].guarded] or _in_loop_alone(case, loners)
    if len(loners) != 1:
        return None
    lone = case.ranks[loners[0]]
    if uneven is not None and lone.step.epoch == uneven.epoch:
        return None  # the others may have had no batch for which they would call there
    others = [case.ranks[rank] for rank in _without(ranks, lone.rank)]
    if has_left_inner_loop(case, lone) and not (lone.now.guard == "rank" or past_its_block(lone, others)):
        return None
    if any(
        _same_point(case, lone.rank, other.rank)
        or (_new_group_in_circle(case, other.rank, lone.rank) and not _only_it_comes_there(lone, other))
        or _known_call_in_circle(case, other.rank, lone.rank)
        or _lacks_its_message(case, other.rank, lone)
        for other in others
    ):
        return None  # rather a mismatch, groups used in different orders, or a message left out
    if _is_another_branch(case, lone, others) or is_past_a_call(case, lone.rank):
        return None
    if not others or any(other.over for other in case if other is not lone) or _have_it_before_them(lone, others):
        return None
    if all(_is_past(case, lone.rank, other.rank) for other in others):
        return None  # they wait in a call that it is through: something else keeps them there
    if all(lone.now.main and not other.now.main for other in others):
        return None  # their main threads may come to its call, once what they wait for in the background has ended
    if not case.all_wait:
        return None  # a rank is still on its way in its own code
    usual = [other for other in others if sites.regular(other.rank) or has_left_loop(case, other)]
    known = 2 * len(usual) > len(others) or lone.guarded
    return lone if known or _stand_together(sites, lone, others) else None


def _is_another_branch(case: Case, lone: RankView, others: list[RankView]) -> bool:
    """Where no check of the rank led it to its call, and one of the others to theirs; asked once for each call site."""
    sites = sites_of(case)
    places = {sites.now(other.rank): other for other in others if lone.now.guard != "rank"}
    mine = Standing(lone.rank, sites.now(lone.rank), lone.evidence.main_stack)
    return any(
        on_two_branches(case, mine, Standing(other.rank, place, other.evidence.main_stack))
        for place, other in places.items()
    )


def _stands_in_its_call(entry: Blocked) -> bool:
    """It is in a call, or waits for its device in the line that made the call: `.full_tensor().cpu()`.

    Of a call that C++ code issued no line is on record: there a check of the rank on the way speaks for it, and that
    no other rank has issued it.
    """
    call, at = entry.call, entry.where
    if entry.activity.in_collective or call is None or entry.need is None:
        return entry.activity.in_collective
    if made := path(call.frames)[:1]:
        return at is not None and made == (at.source_line,)
    alone = {*entry.need.absent, entry.rank} >= {*entry.need.members}
    return alone and entry.activity.guard == "rank" and not in_backward(call)


def _lacks_its_message(case: Case, rank: int, lone: RankView) -> bool:
    """It waits for a message of the lone rank, which no check of the rank has led elsewhere."""
    entry = case.blocked[rank]
    return lone.now.guard != "rank" and entry.to_a_peer and lone.rank in entry.lacking


def past_its_block(lone: RankView, others: list[RankView]) -> bool:
    """All of them wait where the block ends in which it still is: none of them comes to its call any more."""
    stacks = {other.evidence.main_stack for other in others}
    return all(at_the_end_of_its_block(stack, lone.evidence.main_stack) for stack in stacks)


def _stand_together(sites: Sites, lone: RankView, others: list[RankView]) -> bool:
    """All of them, and they are several, are in one call: it is the program's, though it may be new to all.

    Not in the function of the lone call: the two may be the branches of one condition.
    """
    places = {sites.now(other.rank) for other in others}
    place, here = places.pop() if len(places) == 1 else None, sites.now(lone.rank)
    if len(others) < 2 or place is None or here is None or NOT_KNOWN in (place.caller, here.caller):
        return False
    return place.caller[:2] != here.caller[:2]


def _is_past(case: Case, one: int, other: int) -> bool:
    """`one` is through the very call in which `other` waits."""
    theirs, there = case.blocked.get(other), sites_of(case).now(other)
    if theirs is None or theirs.group is None or theirs.seq is None or there is None:
        return False
    made, wait = case.ledger.call(one, theirs.group.name, theirs.seq), case.blocked[one]
    on = wait.group is theirs.group and wait.seq is not None and wait.seq > theirs.seq
    return on and made is not None and (place := site(made)) is not None and same(place, there)


def _same_point(case: Case, one: int, other: int) -> bool:
    """Both bring the same data to the same number of the same group, from the same function: one calls it otherwise."""
    mine, theirs = case.blocked[one], case.blocked[other]
    if mine.call is None or theirs.call is None or mine.group is not theirs.group or mine.seq != theirs.seq:
        return False
    functions = [entry.where.function if entry.where is not None else "" for entry in (mine, theirs)]
    return mine.call.sizes == theirs.call.sizes != () and functions[0] == functions[1]


def _new_group_in_circle(case: Case, one: int, other: int) -> bool:
    """They wait in different groups of which both are members, and no rank has used the lone rank's group before."""
    mine, theirs = case.blocked[one].group, case.blocked[other].group
    if mine is None or theirs is None or mine is theirs or other not in mine.members or one not in theirs.members:
        return False
    return theirs.issued(one) == 0 and theirs.issued(other) == 1


def _in_its_first_call_alone(case: Case, rank: int, others: list[int]) -> bool:
    """It has made no call before; the source leads it alone to this one, and all ranks to the call of the others."""
    first = sites_of(case).regular(rank) is None
    return first and all(_only_it_comes_there(case.ranks[rank], case.ranks[other]) for other in others)


def _only_it_comes_there(lone: RankView, other: RankView) -> bool:
    """The source leads only some ranks to the lone call, and all ranks to the other one: no two orders of groups."""
    return lone.now.guard == "rank" and other.now.guard == "none"


def _known_call_in_circle(case: Case, one: int, other: int) -> bool:
    """They wait in different groups of which both are members, and `one` makes the lone call too, by another path."""
    mine, theirs = case.blocked[one].group, case.blocked[other]
    if mine is None or theirs.group is None or mine is theirs.group or theirs.call is None:
        return False
    if other not in mine.members or one not in theirs.group.members or (made := recorded_caller(theirs.call)) is None:
        return False
    return any(
        recorded_caller(call) == made and (call.op, call.sizes) == (theirs.call.op, theirs.call.sizes)
        for call in case.ledger.calls_in(one, theirs.group.name)
    )


def _in_loop_alone(case: Case, ranks: list[int]) -> list[int]:
    """The one of `ranks` that still stands in a loop, if all others have left it after the same step."""
    inside = [rank for rank in ranks if case.ranks[rank].now.in_loop]
    others = [view for view in case if view.rank not in inside]
    same = {view.step.step for view in case}
    return inside if len(same) == 1 and all(has_left_loop(case, view) for view in others) else []


def _without(ranks: list[int], rank: int) -> list[int]:
    return [other for other in ranks if other != rank]


def _have_it_before_them(lone: RankView, others: list[RankView]) -> bool:
    """The others are steps behind, so that they may still come to the lone rank's place."""
    at = lone.step.step
    return at is not None and any(other.step.step is not None and other.step.step < at for other in others)
