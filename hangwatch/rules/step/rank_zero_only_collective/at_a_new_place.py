"""Calls of one number from different functions: one rank called from where no rank had called before."""

from __future__ import annotations

from collections import Counter

from hangwatch import words
from hangwatch.facts.call_site import Caller, comes_before, path, site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.callers import caller_of
from hangwatch.facts.calls.last_calls import is_early_at, may_be_ahead
from hangwatch.facts.calls.mismatches import Mismatch, alike, culprits_at, mispaired, place_of, same_beside
from hangwatch.facts.calls.standing import Standing, on_two_branches
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import first_uneven, has_left_inner_loop, has_left_loop
from hangwatch.facts.differences.trainer_branches import trainer_branch
from hangwatch.facts.loops.other_loops import skipped_in_other_loop
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Collective, Frame
from hangwatch.ranks.sides import spread
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

from .witnesses import alone_at, behind, call_on_every_rank, condition_of, do_not_call, only_by_rank


def mispaired_at_a_new_place(case: Case) -> Finding | None:
    """Few ranks called from a function new to all ranks, paired with a regular call of the others."""
    found = mispaired(case)
    if found is None or first_uneven(case) is not None or trainer_branch(case) is not None:
        return None
    alone = _at_new_places(case, found)
    views = case.views(alone)
    if not views or any(_may_be_first(case, found, view) or _is_a_branch(case, found, view) for view in views):
        return None
    return _alone(case, found, alone)


def _may_be_first(case: Case, found: Mismatch, view: RankView) -> bool:
    """The others may be on their way to its call: it has left its loop before them, or is ahead of them in a turn."""
    left = has_left_loop(case, view) or has_left_inner_loop(case, view)
    ahead = _ended_ahead(found, view) or _past_another_loop(case, view)
    return left or ahead or _ahead_in_a_first_turn(case, found, view) or _came_early(case, found, view)


def _is_a_branch(case: Case, found: Mismatch, view: RankView) -> bool:
    """A condition that asks for no rank, or a line that calls what a value names, led each to its own call."""
    if view.now.guard == "rank":
        return False
    own = found.calls[view.rank]
    mine = Standing(view.rank, site(own), own.frames)
    others = {site(call): Standing(rank, site(call), call.frames) for rank, call in found.calls.items()}
    return any(on_two_branches(case, mine, other) for place, other in others.items() if place != mine.place)


def _came_early(case: Case, found: Mismatch, view: RankView) -> bool:
    """It ended in a call that all come to by the source, and the others stood before that."""
    others = {rank: path(call.frames) for rank, call in found.calls.items() if rank != view.rank and rank in case.ranks}
    return view.dead and is_early_at(case, view, path(found.calls[view.rank].frames), others)


def _past_another_loop(case: Case, view: RankView) -> bool:
    """It left out calls of a validation, say, and came to what follows that before the others."""
    found = skipped_in_other_loop(case)
    return found is not None and view.rank in found.run.ranks


def _ahead_in_a_first_turn(case: Case, found: Mismatch, view: RankView) -> bool:
    """It waits at a line that all come to, behind lines on which the others stand for the first time.

    No rank has gone by its line without the call: that no other rank has called there says nothing yet.
    """
    mine = path(found.calls[view.rank].frames)
    others = [(rank, call) for rank, call in found.calls.items() if rank != view.rank]
    return view.now.guard == "none" and all(
        comes_before(path(call.frames), mine)
        and not case.ledger.complete_steps(rank)
        and all(path(each.frames) != path(call.frames) for each in _earlier(case, found, rank))
        for rank, call in others
    )


def _earlier(case: Case, found: Mismatch, rank: int) -> list[Collective]:
    return [call for call in case.ledger.calls_in(rank, found.group.name) if call.seq < found.seq]


def _ended_ahead(found: Mismatch, view: RankView) -> bool:
    """It may have ended a turn ahead of the others, which were on their way to its call."""
    others = (path(call.frames) for rank, call in found.calls.items() if rank != view.rank)
    return view.dead and may_be_ahead(view, path(found.calls[view.rank].frames), others)


def _at_new_places(case: Case, found: Mismatch) -> tuple[int, ...]:
    """The fewer ranks, at places that are new to all, if all others are where some rank has been before; else none."""
    callers: dict[int, Caller] = {}
    for rank, call in found.calls.items():
        if (made := caller_of(case, rank, call)) is not None:
            callers[rank] = made
    if len(callers) < len(found.calls) or len(set(callers.values())) < 2:
        return ()
    if len({each[:2] for each in callers.values()}) == 1 and len({each.sizes for each in found.calls.values()}) == 1:
        return ()  # the same data from one function: rather one call, made otherwise
    sites = sites_of(case)
    new = {each for each in set(callers.values()) if not sites.any_called_from(each, found.calls)}
    alone = tuple(rank for rank, each in callers.items() if each in new or _at_a_new_line(case, found, rank))
    if len(alone) == len(callers):
        return _fewer(callers)
    return alone if 2 * len(alone) <= len(callers) else ()


def _fewer(callers: dict[int, Caller]) -> tuple[int, ...]:
    """The fewer ranks, where all call from places that are new to all: most of them from one, as the program has it."""
    ((most, count), *_) = Counter(callers.values()).most_common(1)
    fewer = tuple(rank for rank, made in callers.items() if made != most)
    functions = {callers[rank][:2] for rank in fewer}
    return fewer if 2 * count > len(callers) and most[:2] not in functions else ()


def _at_a_new_line(case: Case, found: Mismatch, rank: int) -> bool:
    """Behind a rank check, at a line of the user's from where no rank had called; what it calls may be a package's."""
    line = path(found.calls[rank].frames)[:1]
    if not line or rank not in case.ranks or case.ranks[rank].now.guard != "rank":
        return False
    earlier = (call for other in found.calls for call in case.ledger.calls(other).values() if call.seq < found.seq)
    return all(path(call.frames)[:1] != line for call in earlier)


def _alone(case: Case, found: Mismatch, alone: tuple[int, ...]) -> Finding:
    meetings = (found, *same_beside(case, found, alone))
    calls = {rank: call for each in meetings for rank, call in each.calls.items()}
    beside = (rank for rank in calls if rank not in found.calls and alike(calls[rank], found.calls[alone[0]]))
    alone = tuple(sorted((*alone, *beside)))
    others = tuple(sorted(calls.keys() - set(alone)))
    call, where = calls[alone[0]], place_of(case, alone[0], calls)
    theirs = place_of(case, others[0], calls)
    way = condition_of(case, alone[0], path(call.frames))
    witnesses = _witnesses(case, found, calls, alone)
    certainty = case.weigh(witnesses)
    sure = any(each.kind is Kind.SOURCE for each in witnesses) and not case.any_rank_failed
    return Finding(
        "rank-zero-only-collective",
        certainty if sure or certainty is not Certainty.PROVEN else Certainty.LIKELY,
        f"{case.say(alone, 'is', 'are', capital=True)} alone in {_named(case, alone[0], call, where)}, which the other"
        f" ranks {do_not_call(case, alone, inside=True)}{behind(way)}; it is paired with"
        f" {_named(case, others[0], calls[others[0]], theirs)} of {case.name(others)}.",
        fix=call_on_every_rank(way),
        culprits=culprits_at(case, alone, calls),
        victims=others,
        step=case.step_of(alone),
        evidence=tuple(_paired(case, each, alone) for each in meetings),
        witnesses=witnesses,
        status=case.failed_status,
    )


def _witnesses(
    case: Case, found: Mismatch, calls: dict[int, Collective], alone: tuple[int, ...]
) -> tuple[Witness, ...]:
    where = place_of(case, alone[0], calls)
    made = caller_of(case, alone[0], calls[alone[0]])
    new = made is not None and not sites_of(case).any_called_from(made, calls)
    line = words.place(Frame(made[0], made[2], made[1]) if new and made is not None else where)
    elsewhere = [rank for rank in case.ranks if rank not in calls]
    used = not new and any(_called_at(case, rank, calls[alone[0]]) for rank in spread(elsewhere))
    who = f"member of group {found.group.name}" if used else "rank"
    witnesses = [alone_at(case, "a collective", f"at {line}", who=who)]
    others = tuple(rank for rank in calls if rank not in alone)
    if len(alone) < len(others):
        witnesses.append(
            Witness(Kind.MAJORITY, f"most ranks are in a call that they have made before: {case.name(others)}")
        )
    if all(view.now.guard == "rank" for view in case.views(alone)):
        witnesses.append(only_by_rank(where))
    return tuple(witnesses)


def _called_at(case: Case, rank: int, call: Collective) -> bool:
    line = path(call.frames)[:1]
    return any(path(each.frames)[:1] == line for each in case.ledger.calls(rank).values())


def _paired(case: Case, found: Mismatch, alone: tuple[int, ...]) -> str:
    here, there = ([rank for rank in sorted(found.calls) if (rank in alone) is inside] for inside in (True, False))
    number = f"number {found.seq} of group {found.group.name}"
    return f"{number} is another call on {case.name(here)} than on {case.name(there)}"


def _named(case: Case, rank: int, call: Collective, where: Frame | None) -> str:
    """`all_reduce (train.py:60)`; below a trainer with its function, where several call from the user's line."""
    place = site(call)
    if place is None or sites_of(case).below(rank, place) is None:
        return f"{call.op}{words.at(where)}"
    return sites_of(case).called(rank, call.op, place)
