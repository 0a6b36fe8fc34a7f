"""A value that differs by rank decided about a collective call: some ranks made it, others did not."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import same
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import condition, conditions
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.data.batches import first_uneven, now_at
from hangwatch.facts.differences.counters import counts_apart
from hangwatch.facts.differences.decisions import Disagreement, disagreement, of_every_step
from hangwatch.facts.differences.left_out import left_out, witnesses_of
from hangwatch.facts.differences.other_loaders import uneven_still
from hangwatch.facts.differences.parted import Parted, ended_by_itself, left_behind, parted, strayed
from hangwatch.facts.differences.parting import Left, counted, made_there_too, parting, two_sides
from hangwatch.facts.differences.trainer_branches import Branch, trainer_branch
from hangwatch.facts.loops.switches import Switched, ending, led, stopped
from hangwatch.facts.loops.turns import fewer_turns
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Frame, Phase
from hangwatch.ranks.sides import odd_of, spread
from hangwatch.rules.another_turn import another_turn
from hangwatch.rules.finding import Finding
from hangwatch.rules.passed_meeting import went_by
from hangwatch.rules.repeated import repeated_before, repeated_now
from hangwatch.rules.turns import decides, equal_turns, left_after_fewer_turns, which_ends
from hangwatch.stacks.frames import user_frame

_FIX_OF_ITEMS = (
    "let all ranks make equally many turns: agree first on what the loop goes through (all_gather_object of its items,"
    " or the largest number of all ranks), and take part with a zero where a rank has nothing"
)
_FIX_OF_A_SWITCH = (
    "set it on all ranks or on none: reduce the value before it is asked (all_reduce of it, op=dist.ReduceOp.MAX)"
)


def rank_local_decision(case: Case) -> Finding | None:
    """Ranks diverged at a condition that depends neither on the rank nor on what is the same on all of them."""
    found = disagreement(case)
    if found is None or not case.in_trouble or not (_decides(found) or _lets_some_in(case, found)):
        return None
    extra = found.found is not None and found.found.how is Left.EXTRA
    if of_every_step(case, found) or (sites_of(case).in_backward(found.made[0], found.place) and not extra):
        return None  # what belongs to every step was skipped, whatever the reason was
    return _finding(case, found)


def _decides(found: Disagreement) -> bool:
    """All ways past the call are conditions on a value, and guard that call and not the rest of the loop's turn."""
    own = {way.asks for way in found.ways} in ({"value"}, {"alike"}) and not any(way.of_turn for way in found.ways)
    return own and not found.of_a_module


def _lets_some_in(case: Case, found: Disagreement) -> bool:
    """Checks led the fewer ranks to a call that no rank had ever made: they hold as an exception, and so they decide.

    A check that data is there is meant to hold always, and then leads to a call of every step. Of rank 0 it may ask for
    what only that rank has, such as its logger.
    """
    if any(way.asks not in ("check", "value") or way.of_turn for way in found.ways) or found.of_a_module:
        return False
    few = 2 * len(found.made) < len(found.made) + len(found.without)
    return few and 0 not in found.made and found.found is None and not _was_made(case, found)


def _was_made(case: Case, found: Disagreement) -> bool:
    """A rank has made that call before, as far as recorded."""
    sites = sites_of(case)
    asked = [rank for side in (found.made, found.without) for rank in spread(side)]
    return any(same(found.place, place) for rank in asked for place in sites.before(rank))


def _finding(case: Case, found: Disagreement) -> Finding:
    one = found.ways[0] if len(found.ways) == 1 else None
    when = words.in_step(found.step)
    made, without = case.name(found.made), case.name(found.without)
    witnesses = (
        Witness(Kind.PLACE, f"{made} called {found.name}{when}, and {without} did not"),
        Witness(Kind.SOURCE, _what_it_asks(found)),
    )
    named = found.found is not None and found.step.batch is not None
    certainty = case.weigh(witnesses) if named and one is not None else Certainty.LIKELY
    return Finding(
        "rank-local-decision",
        certainty,
        f"{conditions(found.ways)} {_came_out(found)}{when}: {made} called {found.name}, {without} did not.",
        culprits=case.culprits(found.odd, one.where if one else None),
        victims=case.victims(found.odd),
        step=found.step,
        evidence=(*((counted(case, found.found),) if found.found is not None else ()), *_in_other_groups(case, found)),
        witnesses=witnesses,
        awaited=found.odd,
    )


def _came_out(found: Disagreement) -> str:
    """A condition on a counter comes out alike at the same count: not what it decides differs, but the count."""
    if found.ways and all(way.counts for way in found.ways):
        return "asks for a counter or an interval that differs by rank"
    return "came out differently on the ranks"


def _in_other_groups(case: Case, found: Disagreement) -> tuple[str, ...]:
    if not found.alike:
        return ()
    did = "called it in their groups too" if found.alike_made else "did not call it in their groups either"
    return (f"{case.name(found.alike)} {did}",)


def _what_it_asks(found: Disagreement) -> str:
    where = words.either(words.place(way.where) for way in found.ways[: words.SHOWN])
    if all(way.asks == "alike" for way in found.ways):
        return (
            f"the condition at {where} asks for counters, settings or reduced values alone: one of them differs by rank"
        )
    return f"the condition at {where} asks neither for the rank nor for a value that was reduced or broadcast before"


def counts_on_from_elsewhere(case: Case) -> Finding | None:
    """A call of every so many turns came in other steps on some ranks from the first on: their counters began apart."""
    found = counts_apart(case) if case.in_trouble else None
    if found is None or not found.began_apart:
        return None
    odd = odd_of(found.made, found.without)
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"{condition(found.way)} asks for a counter that differs by rank{words.in_step(found.found.step)}:"
        f" {case.name(found.made)} called {found.call}, {case.name(found.without)} did not.",
        fix="let the counter begin alike on all ranks: broadcast the step that rank 0 resumes from",
        culprits=case.culprits(odd, found.way.where),
        victims=case.victims(odd),
        step=found.found.step,
        evidence=(counted(case, found.found),),
        witnesses=(
            Witness(Kind.SOURCE, "the source shows no turn of the loop without the call of a step"),
            Witness(Kind.PLACE, f"no rank had made {found.call} by that call path before"),
        ),
        awaited=odd,
    )


def decided_by_a_trainer(case: Case) -> Finding | None:
    """A package's own loop went different ways on the ranks: what it decides by was set on some of them only."""
    branch = trainer_branch(case)
    if branch is None or not case.in_trouble:
        return None
    calls, function = branch.found.calls, branch.there.function
    odd, others = case.name(branch.odd), case.name(branch.others)
    there, here = words.place(branch.there), words.place(branch.here)
    ways = (
        f"{odd} went on at {there} to {calls[branch.odd[0]].op}, and {others} at {here} to {calls[branch.others[0]].op}"
    )
    doing = _phases(case, branch)
    if (switch := ending(case, branch.odd, branch.others)) is not None:
        return _of_a_switch(
            case,
            switch,
            branch.odd,
            f"{words.capital(odd)} took another way than {others} in {function} ({there}){doing}: {switch.told} ends"
            " that loop, and has probably come out differently on the ranks.",
            (f"{ways}, as number {branch.found.seq} of group {branch.found.group.name}",),
        )
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"{words.capital(odd)} took another way than {others} in {function} ({there}), which is no code of the user's:"
        f" what it decides by differs by rank, such as a stop, a limit or an interval that was set on"
        f" {odd} alone{doing}.",
        fix="set what the trainer decides by (a stop, a limit, an interval) on every rank: reduce the value first",
        culprits=case.culprits(branch.odd),
        victims=case.victims(branch.odd),
        step=case.step_of(branch.odd),
        evidence=(f"{ways}, as number {branch.found.seq} of group {branch.found.group.name}",),
        witnesses=branch.why,
        status=case.failed_status,
        awaited=branch.odd,
    )


def _phases(case: Case, branch: Branch) -> str:
    """Which side evaluates, where one does and the other does not."""
    evaluate = [{case.ranks[rank].phase is Phase.EVAL for rank in side} for side in (branch.odd, branch.others)]
    if evaluate == [{True}, {False}]:
        return f"; {case.name(branch.odd)} {words.verb(len(branch.odd), 'evaluates', 'evaluate')}, the others train"
    if evaluate == [{False}, {True}]:
        return f"; {case.name(branch.odd)} {words.verb(len(branch.odd), 'trains', 'train')}, the others evaluate"
    return ""


def stopped_by_a_switch(case: Case) -> Finding | None:
    """Ranks left a trainer's loop, whose end the user's code can order, while the others went on in it."""
    found = stopped(case) if case.in_trouble else None
    if found is None:
        return None
    names = case.name(found.ranks, capital=True)
    where = case.usual_place(found.ranks)
    return _of_a_switch(
        case,
        found,
        found.ranks,
        f"{names} left the trainer's loop {found.after}{now_at(case, found.ranks, where)}; the others went on in it:"
        f" {found.told} ends it, and has probably come out differently on the ranks.",
        details=("Whether an error ended that loop cannot be read in the source.",),
    )


def led_by_a_switch(case: Case) -> Finding | None:
    """A trainer went another way on some ranks, to which the user's code sends it."""
    found = led(case) if case.in_trouble else None
    if found is None:
        return None
    first, other = case.blocked[found.ranks[0]], case.blocked[found.others[0]]
    return _of_a_switch(
        case,
        found,
        odd_of(found.ranks, found.others),
        f"{found.told} came out differently on the ranks: the trainer led {case.name(found.ranks)} to"
        f" {call_words(first)}{words.at(first.where)} and {case.name(found.others)} to"
        f" {call_words(other)}{words.at(other.where)}.",
    )


def _of_a_switch(
    case: Case,
    found: Switched,
    odd: tuple[int, ...],
    summary: str,
    evidence: tuple[str, ...] = (),
    details: tuple[str, ...] = (),
) -> Finding:
    first = found.switches[0]
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        summary,
        fix=_FIX_OF_A_SWITCH,
        culprits=case.culprits(odd, found.the_only),
        victims=case.victims(odd),
        step=case.step_of(odd),
        evidence=(f"`{first.name}` is asked for at {words.place(first.asked)}, in {first.asked.function}", *evidence),
        witnesses=(Witness(Kind.SOURCE, f"{words.place(first.where)} sets it by what may differ by rank"),),
        details=details,
        status=case.failed_status,
        awaited=odd,
    )


def left_an_inner_loop(case: Case) -> Finding | None:
    """Ranks were in one loop, and some left it, by a way out or for want of items; the others made its next call."""
    if (fewer := left_after_fewer_turns(case, "rank-local-decision")) is not None:
        return fewer
    found = parted(case) or left_behind(case)
    loop = found.loop if found is not None and found.left else None
    if found is None or loop is None or not case.in_trouble or not (loop.leaves or ended_by_itself(case, found)):
        return None
    if case.ends_beside({*found.made, *found.without}):
        return None
    turns = fewer_turns(case)
    if not loop.outer or (turns is not None and turns.begun):
        return None  # the loop over the steps: a rank that left it has left the training
    if first_uneven(case) is not None or uneven_still(case) is not None:
        return None  # their loaders say how many turns each of them makes
    if _apart_before(case, found):
        return None
    inside, outside = case.name(found.made), case.name(found.without)
    odd, habit = strayed(case, found)
    at = words.place(loop.where)
    last = f"the call before, {found.before.op}{words.at(user_frame(found.before.frames))},"
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"The ranks made different numbers of turns in the loop at {at}, {which_ends(loop)}:"
        f" {outside} {words.verb(len(found.without), 'has', 'have')} left it, {inside} went on to"
        f" {found.call.op}{words.at(user_frame(found.call.frames))}.",
        fix=equal_turns(loop) if loop.leaves else _FIX_OF_ITEMS,
        culprits=case.culprits(odd, loop.leaves[0] if len(loop.leaves) == 1 else loop.where),
        victims=case.victims(odd),
        step=case.ranks[found.made[0]].step,
        evidence=(f"{last} was made by all of them in that loop", *((habit,) if habit else ())),
        status=case.failed_status,
        awaited=odd,
    )


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
        f" {case.name(found.ahead)} {words.verb(len(found.ahead), 'is', 'are')} at the end of"
        f" {words.verb(len(found.ahead), 'its', 'their')} turns{words.at(found.lines[1])}, {more} went on to {again}.",
        fix=equal_turns(loop) if loop.leaves else _FIX_OF_ITEMS,
        culprits=case.culprits(odd, loop.leaves[0] if len(loop.leaves) == 1 else loop.where),
        step=case.ranks[found.ahead[0]].step,
        evidence=(
            f"{case.name(found.ahead)} came to {words.place(found.lines[1])} by the same call as in earlier steps",
        ),
        witnesses=witnesses_of(case, found),
        awaited=odd,
    )


def _apart_before(case: Case, found: Parted) -> bool:
    """In an earlier step the ranks issued different numbers of calls: what they call now is a consequence of that."""
    earlier, now = parting(case), case.ledger.step_of(found.made[0], found.call)
    return earlier is not None and now is not None and earlier.step.step is not None and earlier.step.step < now


def repeats_a_call(case: Case) -> Finding | None:
    """Few ranks stand in a call that they made in this step already."""
    return repeated_now(case, "rank-local-decision")


def repeated_a_call(case: Case) -> Finding | None:
    """The same of the first step in which the numbers of calls differ."""
    return repeated_before(case, "rank-local-decision")


def made_another_turn(case: Case) -> Finding | None:
    """The same, where the order of calls and their steps tell it, and the numbers of calls do not yet."""
    return another_turn(case, "rank-local-decision")


def decided_about_a_meeting(case: Case) -> Finding | None:
    """Ranks are past a call that returns when all have come to it: a value decided whether to call it."""
    return went_by(case, "rank-local-decision")


def made_unlike_turns(case: Case) -> Finding | None:
    """All made the same calls in one step, some more often, and no witness says how often is usual."""
    found = parting(case) if case.in_trouble else None
    sides = two_sides(case, found.divergence) if found is not None else None
    if found is None or sides is None or found.witnesses or not found.places:
        return None
    few, many = sides
    inside = any(view.step.step == found.step.step for view in case.views(few))  # may yet make the rest
    unknown = len(found.divergence.counts) < len(found.divergence.members)
    if inside or unknown or not all(made_there_too(case, found, few[0])):
        return None
    odd, where = odd_of(few, many), Frame(*found.places[0].lines[0], "")
    call = words.listed([sites_of(case).named(many[0], place) for place in found.places[: words.SHOWN]])
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"The ranks made {call} different numbers of times {found.when}: what decides how often is a rank's own.",
        culprits=case.culprits(odd, where),
        victims=case.victims(odd),
        step=found.step,
        evidence=(counted(case, found),),
        status=case.failed_status,
        awaited=odd,
    )
