"""Ranks made different numbers of turns in a loop, whose end is each rank's own."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.call_site import call_at
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.inner_loops import loop_of_all, loop_of_another_turn
from hangwatch.facts.calls.queues import departure_of
from hangwatch.facts.calls.skip_paths import condition, passed_at, the_only
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import first_uneven
from hangwatch.facts.differences.left_out import left_out, witnesses_of
from hangwatch.facts.differences.other_loaders import uneven_still
from hangwatch.facts.differences.parted import Parted, ended_by_itself, left_behind, parted, strayed
from hangwatch.facts.differences.parting import Left, Parting, counted, made_there_too, parting, two_sides
from hangwatch.facts.loops.turns import fewer_turns, outermost_left
from hangwatch.model import Certainty, Frame, LoopFacts
from hangwatch.ranks.sides import odd_of
from hangwatch.rules.by_queues import by_queues
from hangwatch.rules.finding import Finding
from hangwatch.rules.turns import decides, equal_turns, left_after_fewer_turns, which_ends

_FIX_OF_ITEMS = (
    "let all ranks make equally many turns: agree first on what the loop goes through (all_gather_object of its items,"
    " or the largest number of all ranks), and take part with a zero where a rank has nothing"
)


def left_an_inner_loop(case: Case) -> Finding | None:
    """Ranks were in one loop, and some left it, by a way out or for want of items; the others made its next call."""
    if (fewer := left_after_fewer_turns(case, "rank-local-decision")) is not None:
        return fewer
    found = parted(case) or left_behind(case)
    loop = _that_was_left(case, found) if found is not None and found.left else None
    if found is None or loop is None or not case.in_trouble or not (loop.leaves or ended_by_itself(case, found)):
        return None
    turns = fewer_turns(case)
    if not loop.outer or (turns is not None and turns.begun):
        return None  # the loop over the steps: a rank that left it has left the training
    if first_uneven(case) is not None or uneven_still(case) is not None:
        return None  # their loaders say how many turns each of them makes
    if _apart_before(case, found):
        return None
    inside = case.name(found.made)
    odd, habit = strayed(case, found)
    at = words.place(loop.where)
    last = f"the call before, {call_at(found.before)},"
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"The ranks made different numbers of turns in the loop at {at}, {which_ends(loop)}:"
        f" {case.say(found.without, 'has', 'have')} left it, {inside} went on to {call_at(found.call)}.",
        fix=equal_turns(loop) if loop.leaves else _FIX_OF_ITEMS,
        culprits=case.culprits(odd, loop.leaves[0] if len(loop.leaves) == 1 else loop.where),
        victims=case.victims(odd),
        step=case.ranks[found.made[0]].step,
        evidence=(f"{last} was made by all of them in that loop", *((habit,) if habit else ())),
        status=case.failed_status,
    )


def _that_was_left(case: Case, found: Parted) -> LoopFacts | None:
    """The innermost loop that ranks left, if that can be left on the way; else the outermost one around it."""
    loop = found.loop
    if loop is None or loop.leaves:
        return loop
    around = outermost_left(loop, case.ranks[found.without[0]].now.loop)
    return around if around is not None and around.leaves else loop


def _apart_before(case: Case, found: Parted) -> bool:
    """In an earlier step the ranks issued different numbers of calls: what they call now is a consequence of that."""
    earlier, now = parting(case), case.ledger.step_of(found.made[0], found.call)
    return earlier is not None and now is not None and earlier.step.step is not None and earlier.step.step < now


def made_fewer_turns_of_a_step(case: Case) -> Finding | None:
    """Ranks are in or behind their last turn of a loop within the step, where the others begin the next one."""
    found = left_out(case)
    if found is None or found.loop is None or not decides(found.loop):
        return None
    loop, more = found.loop, case.name(found.due)
    odd = min(found.ahead, found.due, key=len)  # of equally many, those with fewer turns than they ever made
    again = sites_of(case).named(found.due[0], found.skipped)
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"The ranks made different numbers of turns in the loop at {words.place(loop.where)}, {which_ends(loop)}:"
        f" {case.say(found.ahead, 'is', 'are')} at the end of"
        f" {words.verb(len(found.ahead), 'its', 'their')} turns{words.at(found.lines[1])}, {more} went on to {again}.",
        fix=equal_turns(loop) if loop.leaves else _FIX_OF_ITEMS,
        culprits=case.culprits(odd, loop.leaves[0] if len(loop.leaves) == 1 else loop.where),
        step=case.ranks[found.ahead[0]].step,
        evidence=(
            f"{case.name(found.ahead)} came to {words.place(found.lines[1])} by the same call as in earlier steps",
        ),
        witnesses=witnesses_of(case, found),
    )


def made_another_turn(case: Case) -> Finding | None:
    """Ranks made calls of a loop within a step once more, by the order of calls; each rank ends that loop by itself."""
    loop = loop_of_another_turn(case)
    found = by_queues(case) if loop is not None and decides(loop) and departure_of(case) is not None else None
    if found is None or loop is None:
        return None
    summary = f"{found.summary.removesuffix('.')}, in the loop at {words.place(loop.where)}, {which_ends(loop)}."
    culprits = tuple(replace(each, where=loop.where) for each in found.culprits)
    fix = equal_turns(loop)
    return replace(
        found, cause="rank-local-decision", summary=summary, culprits=culprits, fix=fix, status=case.failed_status
    )


def made_fewer_turns_through_its_items(case: Case) -> Finding | None:
    """Ranks made a call of a loop within the step less often than the others: nothing in a turn leads past it."""
    found = parting(case) if case.in_trouble else None
    sides = two_sides(case, found.divergence) if found is not None else None
    if found is None or sides is None or found.how is not Left.SKIPPED or found.ways or not found.places:
        return None
    few, many = sides
    loop = loop_of_all(case, many[0], found.places)
    made = made_there_too(case, found, few[0])
    if loop is None or not decides(loop) or not all(made):
        return None
    call = words.listed([sites_of(case).named(many[0], place) for place in found.places[: words.SHOWN]])
    fewer = words.verb(len(few), "it", "each of them")
    return Finding(
        "rank-local-decision",
        case.weigh(found.witnesses),
        f"The ranks made different numbers of turns in the loop at {words.place(loop.where)}, {which_ends(loop)}:"
        f" {case.name(few)} called {call} less often than {case.name(many)} {found.when}; {fewer} lacked turns of it.",
        fix=equal_turns(loop) if loop.leaves else _FIX_OF_ITEMS,
        culprits=case.culprits(few, loop.leaves[0] if len(loop.leaves) == 1 else loop.where),
        victims=case.victims(few),
        step=found.step,
        evidence=(counted(case, found),),
        witnesses=found.witnesses,
        status=case.failed_status,
    )


def made_unlike_turns(case: Case) -> Finding | None:
    """All made the same calls in one step, some more often: no witness says how often is usual, or they disagree.

    Where they disagree the source must show a way out of the loop around these calls: that is what a rank's own value
    has decided, whichever of the ranks left it as it should.
    """
    found = parting(case) if case.in_trouble else None
    sides = two_sides(case, found.divergence) if found is not None else None
    if found is None or sides is None or not found.places:
        return None
    few, many = sides
    loop = _left_by_choice(case, found, many[0])
    if found.witnesses and loop is None:
        return None
    inside = any(view.step.step == found.step.step for view in case.views(few))  # may yet make the rest
    unknown = len(found.divergence.counts) < len(found.divergence.members)
    if inside or unknown or not all(made_there_too(case, found, few[0])):
        return None
    odd, where = odd_of(few, many), Frame(*found.places[0].lines[0], "")
    call = words.listed([sites_of(case).named(many[0], place) for place in found.places[: words.SHOWN]])
    way = found.ways[0] if the_only(found.ways) is not None else None
    why = "what decides how often is a rank's own"
    if loop is not None:
        why = f"the loop at {words.place(loop.where)}, {which_ends(loop)}, made unlike numbers of turns"
    elif way is not None:
        why = f"{condition(way)} leads past it"
    left = loop.leaves[0] if loop is not None and len(loop.leaves) == 1 else the_only(found.ways)
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"The ranks made {call} different numbers of times {found.when}: {why}.",
        fix=equal_turns(loop) if loop is not None else "",
        culprits=case.culprits(odd, left or where),
        victims=case.victims(odd),
        step=found.step,
        evidence=(counted(case, found), *((passed_at(found.ways, call),) if found.ways else ())),
        status=case.failed_status,
    )


def _left_by_choice(case: Case, found: Parting, rank: int) -> LoopFacts | None:
    """The loop around all calls in question, if it can be left before its end, and nothing else leads past them."""
    loop = loop_of_all(case, rank, found.places) if found.how is Left.UNKNOWN and not found.ways else None
    return loop if loop is not None and loop.leaves and decides(loop) else None
