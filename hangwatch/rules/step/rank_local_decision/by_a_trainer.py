"""A trainer's loop went another way on some ranks: the user's code can order its end, or where it goes next."""

from __future__ import annotations

from pathlib import Path

from hangwatch import words
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.data.batches import now_at
from hangwatch.facts.differences.trainer_branches import apart, trainer_branch
from hangwatch.facts.loops.switches import Switched, ending, led, logged, stopped
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.ranks.sides import odd_of
from hangwatch.rules.finding import Finding

_FIX_OF_A_SWITCH = (
    "set it on all ranks or on none: reduce the value before it is asked (all_reduce of it, op=dist.ReduceOp.MAX)"
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
    if (switch := ending(case, branch.odd, branch.others)) is not None:
        return _of_a_switch(
            case,
            switch,
            branch.odd,
            f"{words.capital(odd)} took another way than {others} in {function} ({there}): {switch.told} ends"
            " that loop, and has probably come out differently on the ranks.",
            (f"{ways}, as number {branch.found.seq} of group {branch.found.group.name}",),
        )
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"{words.capital(odd)} took another way than {others} in {function} ({there}), in no code of the user's: by"
        " what differs between ranks, such as a stop, a limit or an interval of the trainer's, or what the user's"
        " hooks left for it to do.",
        fix="set what the trainer decides by (a stop, a limit, an interval) on every rank: reduce the value first",
        culprits=case.culprits(branch.odd),
        victims=case.victims(branch.odd),
        step=case.step_of(branch.odd),
        evidence=(f"{ways}, as number {branch.found.seq} of group {branch.found.group.name}",),
        witnesses=branch.why,
        status=case.failed_status,
        awaited=branch.odd,
    )


def logged_by_some(case: Case) -> Finding | None:
    """Some ranks are in a trainer's reduction of what was logged, and the others have gone on without it."""
    sides = apart(case) if case.in_trouble else None
    if sides is None or ending(case, sides.odd, sides.others) is not None:
        return None
    calls, ways = sides.found.calls, ((sides.others, sides.odd), (sides.odd, sides.others))
    found = [(who, logged(case, calls[who[0]].frames, calls[left[0]].frames), left) for who, left in ways]
    who, lines, left = next((each for each in found if each[1]), ((), (), ()))
    if not lines:
        return None
    reduces, does = words.verb(len(who), "reduces", "reduce"), words.verb(len(left), "does", "do")
    told = words.either(f"at {words.place(each.where)} behind `{each.condition}`" for each in lines[: words.SHOWN])
    by_rank = all(each.asks == "rank" for each in lines)
    why = "lets only some ranks come there" if by_rank else "has probably come out differently on the ranks"
    number, file = f"number {sides.found.seq} of group {sides.found.group.name}", Path(lines[0].asked.file).name
    made = f"{number} is a call of {case.name(who)} that reduces what was logged, in {file}"
    return Finding(
        "rank-zero-only-collective" if by_rank else "rank-local-decision",
        Certainty.LIKELY,
        f"{case.name(who, capital=True)} {reduces} a logged value that {case.name(left)} {does} not: it is logged"
        f" {told}, which {why}.",
        fix="log it on every rank, or without sync_dist there: the trainer reduces it over all of them"
        if by_rank
        else "log it on every rank, whatever its data: update the metric with what there is, or log a zero",
        culprits=case.culprits(sides.odd, lines[0].where if len(lines) == 1 else None),
        victims=case.victims(sides.odd),
        step=case.step_of(sides.odd),
        evidence=(f"{made}, and one of {case.name(left)} that does not",),
        witnesses=sides.why,
        status=case.failed_status,
        awaited=sides.odd,
    )


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
