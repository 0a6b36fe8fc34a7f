"""A trainer's loop went another way on some ranks: the user's code can order its end, or where it goes next."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.data.batches import now_at
from hangwatch.facts.differences.trainer_branches import trainer_branch
from hangwatch.facts.loops.switches import Switched, ending, led, stopped
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.ranks.sides import odd_of
from hangwatch.rules.finding import Finding
from hangwatch.rules.logged_unlike import logged_unlike

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
    )


def logged_by_some(case: Case) -> Finding | None:
    """A trainer reduces what only some ranks have logged, by a condition that may come out unlike on them."""
    return logged_unlike(case, "rank-local-decision")


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
    )
