"""Ranks that are past a loop, or past a call, in which the others still are, where no DataLoader says why.

The counts say which rank, not why. What the source of the loop shows (in `hangwatch.source.loops`) distinguishes the
likely causes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.facts.call_site import Site, comes_before, path, site
from hangwatch.facts.calls.call_sites import HABIT, Sites, sites_of
from hangwatch.facts.calls.inner_loops import going_out
from hangwatch.facts.calls.last_calls import last_call
from hangwatch.facts.calls.skip_paths import turn_cut_short
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import first_uneven, has_left_inner_loop
from hangwatch.facts.data.drawn import drawn_by_epoch
from hangwatch.facts.differences.level import at_one_place, between_rounds_of, lacking_turns
from hangwatch.facts.differences.updates import are_behind
from hangwatch.facts.loops.ended_around import ended_around
from hangwatch.facts.messages.peer_totals import exchanged_as_often
from hangwatch.facts.messages.rounds import left_habit, record
from hangwatch.facts.processes.process_end import ended_for
from hangwatch.facts.rank_end import Why
from hangwatch.model import Bypass, Collective, LoaderFacts, LoopFacts
from hangwatch.ranks.ledger import is_numbered, is_point_to_point
from hangwatch.ranks.own_steps import steps_end
from hangwatch.ranks.sides import spread
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import callers_of


@dataclass(frozen=True)
class FewerTurns:
    """The ranks that are past the loop, the others that are in it still, and how many steps each has begun.

    `begun` is empty where nothing counts the turns: no optimizer, no DataLoader, or a loop within few steps. `made` are
    the steps of those that left, or where all have, of all: where optimizer steps end the steps, the one that follows
    the last began outside of the loop, and is none.
    """

    left: tuple[int, ...]
    inside: tuple[int, ...]
    begun: dict[int, int]
    made: dict[int, int]
    loop: LoopFacts | None
    within_batch: bool = False  # the loop lies in that over the batches: what counts these says nothing of its turns
    over: bool = False  # those inside are past the loop as well: hosts run ahead of their devices

    @property
    def now(self) -> int:
        """The index of the step in which those inside are."""
        return max(self.begun[rank] for rank in self.inside) - 1


@once
def fewer_turns(case: Case) -> FewerTurns | None:
    begun = _steps_begun(case)
    if len(begun) == 1 or between_rounds_of(case):
        begun = {}  # no turns to compare
    if first_uneven(case) is not None:
        return None
    left, inside = _sides(case, begun)
    if begun and not left and _of_one_role(case, begun):
        begun = {}
        left, inside = _sides(case, begun)
    left, inside = (left, inside) if begun else _of_that_loop(case, left, inside)
    most = max((begun.get(rank, 0) for rank in inside), default=0)
    left = tuple(rank for rank in left if begun.get(rank, 0) < most or not _made_as_many(case, rank, inside))
    left = tuple(rank for rank in left if not _is_between_epochs(case, rank, inside))
    if not left or not inside or not set(left).isdisjoint(inside) or are_behind(case, inside, left):
        return None  # those inside make more forwards for an optimizer step: the others are ahead, and not early
    if case.blocked and not case.may_wait_for(inside, left):
        return None  # they are kept by other ranks, and those that left may have made all their turns
    if case.blocked and all(_waits_for_another_peer(case, rank, left) for rank in inside):
        return None
    level = any(begun.get(rank, 0) == begun.get(inside[0], 0) for rank in left)
    if level and left != ended_around(case) and not _all_regular(case, inside, counted=bool(begun)):
        return None  # a rank at a place where no rank has been before may rather have the extra call
    if level and left_habit(case) is not None:
        return None  # one of them left out messages, in as many turns
    sites = sites_of(case)
    inside = inside if begun else _where_they_were(case, sites, inside, left)
    if not inside:
        return None  # ranks that have not been in the loop may yet reach it
    ended = {rank: steps - steps_end(case.ranks[rank]) for rank, steps in begun.items()}
    made = {rank: ended[rank] for rank in left if rank in ended}
    loop = _loop(case, left, inside) if not at_one_place(case) else None  # they stand in one loop, around that
    within_batch = loop is not None and all(_is_around_by_loader(case.ranks[rank], loop) for rank in (*left, *inside))
    if loop is not None and any(
        _not_of_every_step(case, sites, rank, loop) or _several_in_a_step(case, sites, rank, loop) for rank in inside
    ):
        begun, made = {}, {}
    if within_batch:
        begun, made = {}, {}
    over = bool(begun) and all(_is_past_too(case, rank) for rank in inside)
    return FewerTurns(
        left, inside, begun, ended if over else made, _with_skips(case, left, inside, loop), within_batch, over
    )


def _waits_for_another_peer(case: Case, rank: int, left: tuple[int, ...]) -> bool:
    """It waits for the other end of a message, and by messages alone for none of those that `left`."""
    reached, todo = {rank}, [rank]
    while todo:
        entry = case.blocked.get(todo.pop())
        if entry is not None and entry.to_a_peer:
            further = set(entry.lacking) - reached
            reached |= further
            todo += further
    return len(reached) > 1 and reached.isdisjoint(left)


def _is_past_too(case: Case, rank: int) -> bool:
    """Its host stands outside of every loop, in a wait for its device, which is behind: not in the call of a turn."""
    view = case.ranks[rank]
    outside = view.now.in_loop is False or at_one_place(case)
    return rank in case.blocked and outside and not view.now.in_collective


def _is_between_epochs(case: Case, rank: int, inside: tuple[int, ...]) -> bool:
    """Its data has ended with as many batches as each of those `inside` drew in that epoch: they are in a later one."""
    loader = case.ranks[rank].loader
    if loader is None or not loader.exhausted or not inside:
        return False
    table = [drawn_by_epoch(other) for each in spread(inside) if (other := case.ranks[each].loader) is not None]
    counts = {counts[loader.epoch].count for counts in table if loader.epoch + 1 in counts and loader.epoch in counts}
    return len(table) == len(spread(inside)) and counts == {loader.drawn}


def _steps_begun(case: Case) -> dict[int, int]:
    """Of each rank; the forwards it made, where one rank draws the batches for all and the others have none to count.

    The drawing rank may be a batch ahead of its forwards.
    """
    forwards = {view.rank: view.reading.progress.forwards for view in case if view.reading is not None}
    of_batches = {view.step.batch is not None for view in case if view.step.step is not None}
    if len(of_batches) > 1 and len(forwards) == len(case.ranks) and all(forwards.values()):
        return forwards
    return {view.rank: view.step.step + 1 for view in case if view.step.step is not None}


def _sides(case: Case, begun: dict[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks that are past the loop, and those that are in it and have begun the most steps."""
    most, asked = max(begun.values(), default=0), list(begun or case.blocked or case.ranks)
    short, longer = lacking_turns(case, begun)
    if short:
        return short, longer
    if case.blocked:
        left = tuple(rank for rank in asked if has_left_inner_loop(case, case.ranks[rank]))
        alike = set(left) if all(begun.get(rank, 0) == most for rank in left) else set()
        waiting = (rank for rank in asked if begun.get(rank, 0) == most and rank in case.blocked)
        inside = tuple(rank for rank in waiting if rank not in alike)
    else:
        around = ended_around(case)
        left = around or tuple(r for r in asked if case.ranks[r].ended_well or _died_behind_it(case, case.ranks[r]))
        last = [r for r in asked if begun.get(r, 0) == most and r not in left]
        inside = tuple(
            r for r in last if ended_for(case.ranks[r]) is not Why.ITSELF and (begun or case.ranks[r].now.in_loop)
        )
    some = spread(inside)
    return tuple(rank for rank in left if not _have_yet_to_come(case, rank, some)), inside


def _not_of_every_step(case: Case, sites: Sites, rank: int, loop: LoopFacts) -> bool:
    """The function with that loop is called in few steps, e.g. to generate: its turns are no steps."""
    callers = path(callers_of(case.ranks[rank].evidence.main_stack, loop.where))
    earlier = sites.earlier_steps(rank).values()
    within = [places for places in earlier if any(place.lines[-len(callers) :] == callers for place in places)]
    return bool(callers) and len(earlier) >= HABIT and 2 * len(within) < len(earlier)


def _several_in_a_step(case: Case, sites: Sites, rank: int, loop: LoopFacts) -> bool:
    """It has made more than one turn of that loop, the innermost around its call, in its present step."""
    view = case.ranks[rank]
    made = sites.in_step(rank, view.step.step)
    last = last_call(case, view) if not case.blocked else None
    place = last.site if last is not None else sites.now(rank)
    innermost = view.now.loop is not None and view.now.loop.where == loop.where
    return innermost and sum(each == place for each in made) > 1


def _is_around_by_loader(view: RankView, loop: LoopFacts) -> bool:
    """The loop over its DataLoader, whose batches are its steps, lies around that loop."""
    where = view.loader.where if view.loader is not None else None
    return where is not None and any(each.source_line == where.source_line for each in loop.outer)


def _with_skips(case: Case, left: tuple[int, ...], inside: tuple[int, ...], loop: LoopFacts | None) -> LoopFacts | None:
    """The loop with the ways in which a turn of it can end before the call in which those `inside` stand.

    A turn without its optimizer step is no step to those that count these: it is missing, and the loop was not shorter.
    """
    if loop is None or loop.skips or not all(steps_end(case.ranks[rank]) for rank in left):
        return loop
    ways = {way.where for rank in inside for way in _cut_short(case, rank, loop)}
    return replace(loop, skips=tuple(sorted(ways, key=lambda where: where.source_line)))


def _cut_short(case: Case, rank: int, loop: LoopFacts) -> tuple[Bypass, ...]:
    view = case.ranks[rank]
    innermost = view.now.loop is not None and view.now.loop.where == loop.where
    return turn_cut_short(case, path(view.evidence.main_stack), of_inner_loop=innermost)


def _made_as_many(case: Case, rank: int, inside: tuple[int, ...]) -> bool:
    """It has made the last call of a rank inside, under that number and from that place: it lacks no turn.

    With NCCL a rank whose host waits in the last turn for its device has called all that the loop calls. The last call
    of a rank that stands in a message is that message, and not the collective before it.
    """
    for group in case.ledger.groups_of(rank):
        for other in spread([each for each in inside if each in group.heads]):
            number = group.issued(other) or 0
            mine, theirs = (case.ledger.call(each, group.name, number) for each in (rank, other))
            if mine is not None and _same_place(mine, theirs) and not _lacks_its_message(case, rank, other, mine):
                return True
    return any(exchanged_as_often(case, rank, other) for other in spread(inside))


def _lacks_its_message(case: Case, rank: int, other: int, call: Collective) -> bool:
    """Behind that collective `other` made the send or receive in which it stands, from where `rank` made fewer."""
    place = sites_of(case).now(other) if other in case.blocked and case.blocked[other].to_a_peer else None
    if place is None:
        return False
    mine, theirs = (_messages_behind(case, each, call, place) for each in (rank, other))
    return mine < max(theirs, 1)  # the record may not have the one that it is in


def _messages_behind(case: Case, rank: int, call: Collective, place: Site) -> int:
    """How many messages `rank` has made from `place` since that collective."""
    calls = record(case, rank)
    known = (call.group, call.seq)
    here = [n for n, each in enumerate(calls) if is_numbered(each) and (each.group, each.seq) == known]
    behind = calls[here[-1] + 1 :] if here else ()
    return sum(is_point_to_point(each) and site(each) == place for each in behind)


def _same_place(one: Collective, other: Collective | None) -> bool:
    return other is not None and site(one) is not None and site(one) == site(other)


def _have_yet_to_come(case: Case, rank: int, inside: Sequence[int]) -> bool:
    """`rank` stands on lines ahead of that loop, or in a call with which one of those `inside` went on in it.

    Programs have several loops one after another, and their steps are counted through.
    """
    if any(_made_its_call(case, rank, other) for other in inside):
        return True
    mine = path(case.ranks[rank].evidence.main_stack)
    outside = case.ranks[rank].now.in_loop is False
    return outside and all(comes_before(mine, path(case.ranks[other].evidence.main_stack)) for other in inside)


def _made_its_call(case: Case, rank: int, other: int) -> bool:
    """`other` has made the very call in which `rank` stands, from the same place, and another call or step since."""
    last = last_call(case, case.ranks[rank])
    mine = last.call if last is not None else None
    group = case.ledger.group(other, mine.group) if mine is not None else None
    theirs = case.ledger.call(other, mine.group, mine.seq) if mine is not None else None
    if mine is None or theirs is None or group is None or site(mine) != site(theirs):
        return False
    now, then = case.ranks[other].step.step, theirs.step
    return (group.issued(other) or 0) > mine.seq or (now is not None and then is not None and now > then)


def _of_one_role(case: Case, begun: dict[int, int]) -> bool:
    """Ranks that wait count no steps, as actors without an optimizer: those of the learners say nothing of their turns.

    They must have made calls again and again: a rank that has come to no step yet counts none either.
    """
    rest, sites = [rank for rank in case.blocked if rank not in begun], sites_of(case)
    return bool(rest) and all(max(sites.before(rank).values(), default=0) >= HABIT for rank in spread(rest))


def _of_that_loop(
    case: Case, left: tuple[int, ...], inside: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Those that have been in the loop of one of the ranks inside: another role of a program never comes there.

    Where none of them has, its own role may be in a loop too, which lies further down than that of the ranks inside.
    """
    sites, some = sites_of(case), spread(inside)
    if own := tuple(rank for rank in left if any(_has_been_there(case, sites, other, rank) for other in some)):
        return own, inside
    outside = tuple(rank for rank in left if case.ranks[rank].now.in_loop is False)
    still = tuple(rank for rank in left if case.ranks[rank].now.in_loop and rank in case.blocked) if outside else ()
    return outside, _where_they_were(case, sites, still, outside)


def _where_they_were(case: Case, sites: Sites, inside: tuple[int, ...], left: tuple[int, ...]) -> tuple[int, ...]:
    """Those inside of a loop in which all that left have been: each role of a program may have a loop of its own."""
    asked = spread(left)
    return tuple(other for other in inside if all(_has_been_there(case, sites, other, rank) for rank in asked))


def _has_been_there(case: Case, sites: Sites, other: int, rank: int) -> bool:
    """`rank` has called where `other` stands now."""
    if not case.blocked:
        last = last_call(case, case.ranks[other])
        return last is not None and last.site in {site(call) for call in case.ledger.calls(rank).values()}
    to_peers = {site(call) for call in case.ledger.to_peers(rank) or ()}
    return bool(sites.shared(other, [rank])) or sites.now(other) in to_peers


def drew_alike(case: Case, short: FewerTurns) -> bool:
    """All have drawn as many batches, and the rank that left the loop had no more: it lacks calls, not data."""
    loaders = [case.ranks[rank].loader for rank in (*short.left, *short.inside)]
    known = [loader for loader in loaders if loader is not None]
    same = len({(loader.epoch, loader.drawn) for loader in known}) == 1
    if _can_leave_around(case, short, known):
        return False
    return same and len(known) == len(loaders) and all(loader.exhausted for loader in known[: len(short.left)])


def _can_leave_around(case: Case, short: FewerTurns, loaders: list[LoaderFacts]) -> bool:
    """The others are in a loop around that over the data, which can be left, and no step before it differs."""
    loop, data = short.loop, {each.where.source_line for each in loaders if each.where is not None}
    if loop is None or not loop.leaves or not data or loop.where.source_line in data:
        return False
    return case.ledger.first_apart(short.left[0], short.inside[0]) is None


def _died_behind_it(case: Case, view: RankView) -> bool:
    """Its last stack stands outside of every loop, or in the loop around that of the others."""
    return view.dead and (view.now.in_loop is False or has_left_inner_loop(case, view))


def _all_regular(case: Case, ranks: tuple[int, ...], *, counted: bool) -> bool:
    """They wait in a call of every step: the step that they have begun is one that those outside did not begin."""
    if not case.blocked:  # those that ended have no call of now: none of them was in its first turn
        return all(case.ranks[rank].now.in_loop and (not counted or case.ranks[rank].step.step) for rank in ranks)
    sites = sites_of(case)
    return all(
        (sites.regular(rank) or (not counted and _sends_regularly(case, sites, rank))) and case.ranks[rank].now.in_loop
        for rank in ranks
    )


def _sends_regularly(case: Case, sites: Sites, rank: int) -> bool:
    """The send or receive in which it waits is not its first one there."""
    calls = case.ledger.to_peers(rank) or ()
    return case.blocked[rank].to_a_peer and sum(site(call) == sites.now(rank) for call in calls) > 1


def _loop(case: Case, left: tuple[int, ...], inside: tuple[int, ...]) -> LoopFacts | None:
    """The outermost loop that those who `left` are past and those `inside` are in, with every way out on the way."""
    views: list[RankView] = [case.ranks[rank] for rank in inside]
    first = next((view for view in views if view.now.loop is not None), None)
    if first is None or first.now.loop is None:
        return None
    loop = first.now.loop
    roles = _has_called_in(case, first.rank, loop) and not _has_called_in(case, left[0], loop)
    return outermost_left(loop, case.ranks[left[0]].now.loop) if not roles else None


def _has_called_in(case: Case, rank: int, loop: LoopFacts) -> bool:
    """A recorded call of `rank` came from that loop: each role of a program may have one of its own."""
    return any(loop.holds(*line) for call in record(case, rank) for line in path(call.frames))


def outermost_left(loop: LoopFacts, theirs: LoopFacts | None) -> LoopFacts | None:
    """Of `loop` and those around it the outermost that ranks in the loop `theirs` are past, with every way out."""
    if theirs is not None and theirs.where not in loop.outer:
        return loop
    past = len(loop.outer) if theirs is None else loop.outer.index(theirs.where)
    if len(loop.outer_leaves) < past:
        return None  # a report of an older version: not read
    leaves = sorted({*loop.leaves, *(each for found in loop.outer_leaves[:past] for each in found)}, key=words.place)
    return replace(going_out(loop, past), leaves=tuple(leaves))
