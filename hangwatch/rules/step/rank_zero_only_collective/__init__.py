"""One rank alone in a collective: validation, logging or saving behind a rank check."""

from __future__ import annotations

from collections import Counter

from hangwatch import words
from hangwatch.facts.call_site import (
    NOT_KNOWN,
    at_the_end_of_its_block,
    chosen_at_one_line,
    in_backward,
    path,
    recorded_caller,
    same,
    site,
)
from hangwatch.facts.calls.call_sites import HABIT, Sites, sites_of
from hangwatch.facts.calls.last_calls import frames_at_end, library_call
from hangwatch.facts.calls.skip_paths import of_one_condition
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import first_uneven, has_left_inner_loop, has_left_loop
from hangwatch.facts.differences.parting import Parting, counted, parting
from hangwatch.facts.differences.repeats import made_by_few, package_line, repeated_by_few, stands_in_it
from hangwatch.facts.processes.process_end import EndedFor, ended_for
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Collective, Frame, Status, ThreadStack
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Within
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import name_of, user_frame

from .together import alone_together
from .with_a_message import alone_with_a_message
from .witnesses import alone_at, do_not_call, is_guarded


def rank_zero_only(case: Case) -> Finding | None:
    """One rank called a collective that the others never call."""
    found = parting(case)
    if found is not None:
        if not made_by_few(case, found) or _is_a_backward_of_all(case, found) or repeated_by_few(case) is not None:
            return None
        return _rank_zero_only(case, found.all_who, found)
    alone = alone_together(case)
    if not alone and (lone := _alone_now(case)) is not None:
        alone = (lone.rank,)
    return _rank_zero_only(case, alone, None) if alone else None


def _is_a_backward_of_all(case: Case, found: Parting) -> bool:
    """Its backward reduced gradients, as that of the others does in another step: what differs is when."""
    sites, group = sites_of(case), found.divergence.group
    others = [rank for rank in found.divergence.counts if rank not in found.who]
    used = [{site(call) for call in case.ledger.calls_in(rank, group)} for rank in others]
    return bool(found.places) and all(
        sites.in_backward(found.who[0], place) and all(place in each for each in used) for place in found.places
    )


def _alone_now(case: Case) -> RankView | None:
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
    """Each rank of it waits in another group, if from one line. Messages that cross say more of themselves."""
    circle = list(case.graph.cycle(case.deadlocked))
    messages = any(case.blocked[rank].to_a_peer for rank in circle)
    asked = [rank for rank in circle if not _comes_by_another_path(case, rank)]
    return None if messages else _alone_among(case, circle, asked)


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
    if has_left_inner_loop(case, lone) and not (lone.now.guard == "rank" or _past_its_block(lone, others)):
        return None
    if any(
        _same_point(case, lone.rank, other.rank)
        or (lone.now.guard != "rank" and _is_another_branch(case, lone, other))
        or (_new_group_in_circle(case, other.rank, lone.rank) and not _only_it_comes_there(lone, other))
        or _known_call_in_circle(case, other.rank, lone.rank)
        for other in others
    ):
        return None  # rather a mismatch, or groups used in different orders
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


def _is_another_branch(case: Case, lone: RankView, other: RankView) -> bool:
    """A condition, or a line that calls what a value names, led each of them to its own call.

    Such a line may as well call several functions in turn: where one of them is called in each step, it does.
    """
    sites = sites_of(case)
    mine, theirs = lone.evidence.main_stack, other.evidence.main_stack
    by_name = sites.regular(other.rank) is False and chosen_at_one_line(mine, theirs)
    return by_name or of_one_condition(case, sites.now(lone.rank), sites.now(other.rank))


def _stands_in_its_call(entry: Blocked) -> bool:
    """It is in a call, or waits for its device in the line that made the call: `.full_tensor().cpu()`.

    Of a call that C++ code issued no line is on record: there a check of the rank on the way speaks for it, and that
    no other rank has issued it.
    """
    call, at = entry.call, entry.where
    if entry.activity.in_collective or call is None or entry.need is None:
        return entry.activity.in_collective
    if made := path(call.frames)[:1]:
        return at is not None and made == ((at.file, at.line),)
    alone = {*entry.need.absent, entry.rank} >= {*entry.need.members}
    return alone and entry.activity.guard == "rank" and not in_backward(call)


def _past_its_block(lone: RankView, others: list[RankView]) -> bool:
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


def _rank_zero_only(case: Case, alone: tuple[int, ...], found: Parting | None) -> Finding:
    lone = case.ranks[alone[0]]
    others = tuple(rank for rank in case.blocked if rank not in alone)
    inside = found is None or stands_in_it(case, found, lone.rank)
    caller = sites_of(case).apart(lone.rank, [rank for rank in case.ranks if rank not in alone]) if inside else None
    at = f" ({words.place(lone.where)}, called from {words.place(caller)})" if caller else words.at(lone.where)
    if caller is None and (line := package_line(case, lone.rank)) is not None:
        at = f" of {name_of(line.function)} ({words.place(line)}, below {words.place(lone.where)})"
    call = f"{_call_name(case, lone)}{at}" if inside else found.call if found is not None else "a collective"
    if inside and case.stood:
        call += words.in_step(lone.step)  # of a rank that waits still, its own table shows it
    witnesses = _witnesses(case, alone, found, caller, inside=inside)
    tail = f"; {case.wait_words(others)} elsewhere{case.at_places(others)}" if others else ""
    buffers = Within.BUFFERS in lone.now.within
    return Finding(
        "rank-zero-only-collective",
        _certainty(case, witnesses, lone.rank),
        f"{_alone_in(case, alone, call, None if inside else found)}{tail}.",
        fix="evaluate with model.module: the DDP wrapper broadcasts its buffers in forward" if buffers else "",
        culprits=case.culprits(alone, caller if inside or found is None else _place_of(found)),
        victims=others,
        step=found.step if found is not None else lone.step,
        evidence=() if found is None else (counted(case, found),),
        witnesses=witnesses,
        awaited=alone,
    )


def _alone_in(case: Case, alone: tuple[int, ...], call: str, before: Parting | None) -> str:
    """`Rank 0 is alone in barrier (train.py:9), which the other ranks never call`; or what it called `before`."""
    ranks, do_not = words.ranks(alone, capital=True), do_not_call(case, alone, inside=before is None)
    if before is None:
        return f"{ranks} {words.verb(len(alone), 'is', 'are')} alone in {call}, which the other ranks {do_not}"
    if call:
        return f"{ranks} called {call} {before.when}, which the other ranks {do_not}"
    lone = case.ranks[alone[0]]
    there = before.step.step == lone.step.step and lone.where is not None and not lone.over
    now = f"; it is at {words.place(lone.where)}" if there and len(alone) == 1 else ""
    return f"{ranks} issued more collectives than the other ranks {before.when}, which of them is not on record{now}"


def _place_of(found: Parting) -> Frame | None:
    """The line of the calls in question, where they come from one."""
    lines = {place.lines[:1] for place in found.places}
    (file, line), *_ = lines.pop() if len(lines) == 1 else (("", 0),)
    return Frame(file, line, "") if file else None


def _witnesses(
    case: Case, alone: tuple[int, ...], found: Parting | None, caller: Frame | None, *, inside: bool
) -> tuple[Witness, ...]:
    lone, sites = case.ranks[alone[0]], sites_of(case)
    others = [rank for rank in case.blocked if rank not in alone]
    heard = list(found.witnesses) if found is not None else []
    where = words.place(lone.where)
    known = inside and lone.rank in case.blocked and not _by_a_package(case.blocked[lone.rank].call)
    unshared = known and not sites.shared(lone.rank, others)
    if unshared and not any(witness.kind is Kind.PLACE for witness in heard):
        by = f" from {words.place(caller)}" if caller is not None else ""
        line = package_line(case, lone.rank) if caller is None else None
        place = sites.now(lone.rank)  # of the others some may have called another operation there
        line = line or (sites.below(lone.rank, place) if place is not None else None)
        at = f"in {name_of(line.function)} ({words.place(line)})" if line is not None else f"at {where}{by}"
        what = place.kind if place is not None and place.kind else "a collective"
        heard.append(alone_at(case, what, at))
    if inside and is_guarded(case, alone):
        heard.append(Witness(Kind.SOURCE, f"the source leads to {where} only under a condition on the rank"))
    if inside and others and _past_its_block(lone, case.views(others)):
        at_end = f"{case.name(others)} {words.verb(len(others), 'waits', 'wait')} at the end of a with block"
        heard.append(
            Witness(Kind.PLACE, f"{at_end} in which {case.name(alone)} still {words.verb(len(alone), 'is', 'are')}")
        )
    return tuple(heard)


def _by_a_package(call: Collective | None) -> bool:
    """A package's thread made it by itself: the user's line shown is the one that awaits that thread."""
    return call is not None and bool(call.frames) and not path(call.frames)


def _certainty(case: Case, witnesses: tuple[Witness, ...], lone: int) -> Certainty:
    """A call that is new to every rank looks the same where all the others have left it out: the source must say.

    Of a message it does not say whether the peer has left out its part, which is another line.
    """
    found = case.weigh(witnesses)
    to_a_peer = lone in case.blocked and case.blocked[lone].to_a_peer
    said = any(witness.kind is Kind.SOURCE for witness in witnesses) and not to_a_peer
    return found if said or found is not Certainty.PROVEN else Certainty.LIKELY


def _call_name(case: Case, view: RankView) -> str:
    if Within.BUFFERS in view.now.within:
        return "the model's forward, with its broadcast of buffers"
    blocked = case.blocked.get(view.rank)
    frames, _, _ = frames_at_end(view)
    return library_call(frames) or view.now.call or (blocked.op if blocked is not None else "") or "a collective"


def evaluated_alone(case: Case) -> Finding | None:
    """One rank failed in an evaluation, in a collective that no other rank issued: the others ended as they should."""
    failed = [view for view in case if view.failed]
    if (
        len(failed) != 1
        or len(case.ranks) < 2
        or not all(_came_to_its_end(view) for view in case if view is not failed[0])
    ):
        return None
    view = failed[0]
    error, more = view.exception, _more_forwards(case, view)
    if error is None or not more or ended_for(view) is not EndedFor.PEER:
        return None
    where = user_frame(error.frames)
    others = case.name([other.rank for other in case if other is not view])
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,
        f"{words.ranks([view.rank], capital=True)} evaluated alone with a model that communicates{words.at(where)}: its"
        f" calls were mispaired with those of later steps, until {others} had ended and it failed.",
        fix="evaluate with model.module: the DDP wrapper broadcasts its buffers in forward",
        culprits=(view.culprit(where),),
        victims=(),
        step=view.step,
        evidence=(
            f"rank {view.rank} made {words.plural(more, 'forward')} more than any other rank, in as many steps",
            f"it failed with {error.type}, in a collective of the model's forward{words.at(where)}",
            f"{others} had ended the program",
        ),
        status=Status.FAILED,
    )


def _came_to_its_end(view: RankView) -> bool:
    """Not in the midst of a step, as after os._exit."""
    return view.ended_well and view.over


def _more_forwards(case: Case, view: RankView) -> int:
    """How many more forwards it has made than any other rank, all in the same step and it in one; else 0."""
    made = {other.rank: other.reading.progress for other in case if other.reading is not None}
    error = view.exception
    if error is None or len({progress.step for progress in made.values()}) != 1:
        return 0
    if Within.BUFFERS not in activity(ThreadStack(0, "", error.frames, main=True)).within:
        return 0
    return max(made[view.rank].forwards - max(made[rank].forwards for rank in made if rank != view.rank), 0)
