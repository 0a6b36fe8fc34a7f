"""One rank alone in a collective: validation, logging or saving behind a rank check."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import path, site
from hangwatch.facts.calls.by_logging import logged_at
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.last_calls import frames_at_end, library_call
from hangwatch.facts.calls.skip_paths import passed_at, past_lines
from hangwatch.facts.case import Case
from hangwatch.facts.differences.parting import Parting, counted, parting
from hangwatch.facts.differences.repeats import made_by_few, package_line, repeated_by_few, stands_in_it, way_of_its_own
from hangwatch.facts.processes.process_end import ended_for
from hangwatch.facts.rank_end import Why
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Collective, Frame, Status, ThreadStack
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Within
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import name_of, user_frame

from .alone_now import alone_now, past_its_block
from .together import alone_together
from .witnesses import (
    alone_at,
    behind,
    call_on_every_rank,
    condition_of,
    do_not_call,
    is_guarded,
    only_by_rank,
)

_FIX_OF_LOGGING = (
    "reduce what is logged on every rank, ahead of the logging call: a message is formatted only where its level is"
    " enabled"
)


def rank_zero_only(case: Case) -> Finding | None:
    """One rank called a collective that the others never call."""
    found = parting(case)
    if found is not None:
        if not made_by_few(case, found) or _is_a_backward_of_all(case, found) or repeated_by_few(case) is not None:
            return None
        return _rank_zero_only(case, found.all_who, found)
    alone = alone_together(case)
    if not alone and (lone := alone_now(case)) is not None:
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


def _rank_zero_only(case: Case, alone: tuple[int, ...], found: Parting | None) -> Finding:
    lone = case.ranks[alone[0]]
    others = case.victims(alone)
    before = None if found is None or stands_in_it(case, found, lone.rank) else found  # what it has left behind since
    if found is not None:
        caller = way_of_its_own(case, found, lone.rank)
    else:
        caller = sites_of(case).apart(lone.rank, [rank for rank in case.ranks if rank not in alone])
    call = _call_now(case, lone, caller) if before is None else _call_then(before, caller)
    lines = sites_of(case).lines_now(lone.rank) if before is None else before.lines
    logged = logged_at(case, lone.rank, lines)
    way = condition_of(case, lone.rank, lines) if logged is None else None
    ways = past_lines(case, lines) if way is None and logged is None else ()
    witnesses = _witnesses(case, alone, found, caller, inside=before is None)
    tail = f"; {case.wait_words(others)} elsewhere{case.at_places(others)}" if others else ""
    buffers = Within.BUFFERS in lone.now.within
    fix = call_on_every_rank(way, through_ddp=buffers)
    return Finding(
        "rank-zero-only-collective",
        _certainty(case, witnesses, lone.rank),
        f"{_alone_in(case, alone, call, before)}{behind(way) if logged is None else _as_it_logs(logged)}{tail}.",
        fix=_FIX_OF_LOGGING if logged is not None else fix and fix + _or_in_their_group(case, alone),
        culprits=case.culprits(alone, caller or (None if before is None else _place_of(before))),
        victims=others,
        step=found.step if found is not None else lone.step,
        evidence=(
            *(() if found is None else (counted(case, found),)),
            *((passed_at(ways, "that call"),) if ways else ()),
        ),
        witnesses=witnesses,
    )


def _as_it_logs(where: Frame) -> str:
    return f": the message logged at {words.place(where)} makes it as it is formatted, where its level is enabled"


def _or_in_their_group(case: Case, alone: tuple[int, ...]) -> str:
    """They have a group of their own, for which the call may be meant: without `group=` it is one of all ranks."""
    theirs = len(alone) > 1 and any(group.members == alone for group in case.ledger.groups_of(alone[0]))
    return "; or pass group=, if it is meant for the group of these ranks" if theirs else ""


def _call_now(case: Case, lone: RankView, caller: Frame | None) -> str:
    """The call that it is in, or was in at the end."""
    at = f" ({words.place(lone.where)}, called from {words.place(caller)})" if caller else words.at(lone.where)
    if caller is None and (line := package_line(case, lone.rank)) is not None:
        at = f" of {name_of(line.function)} ({words.place(line)}, below {words.place(lone.where)})"
    # Of a rank that waits still, its own table shows the step.
    return f"{_call_name(case, lone)}{at}{words.in_step(lone.step) if case.stood else ''}"


def _call_then(before: Parting, caller: Frame | None) -> str:
    """The call that it made and has gone on from; "" where it is not on record."""
    return f"{before.call} from {words.place(caller)}" if before.call and caller is not None else before.call


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
        by = f" {_by(lone)} {words.place(caller)}" if caller is not None else ""
        line = package_line(case, lone.rank) if caller is None else None
        place = sites.now(lone.rank)  # of the others some may have called another operation there
        line = line or (sites.below(lone.rank, place) if place is not None else None)
        at = f"in {name_of(line.function)} ({words.place(line)})" if line is not None else f"at {where}{by}"
        what = place.kind if place is not None and place.kind else "a collective"
        heard.append(alone_at(case, what, at))
    if inside and is_guarded(case, alone):
        heard.append(only_by_rank(lone.where))
    if inside and others and past_its_block(lone, case.views(others)):
        at_end = f"{case.wait_words(others)} at the end of a with block"
        heard.append(
            Witness(Kind.PLACE, f"{at_end} in which {case.name(alone)} still {words.verb(len(alone), 'is', 'are')}")
        )
    return tuple(heard)


def _by(view: RankView) -> str:
    """A destructor runs at any line, from which no line of the source calls it."""
    return "as `__del__` ran at" if Within.DESTRUCTOR in view.now.within else "from"


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
    if error is None or not more or ended_for(view) is not Why.PEER:
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
