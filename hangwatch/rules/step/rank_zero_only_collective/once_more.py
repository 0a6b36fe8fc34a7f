"""A call that one rank makes once more than the others, or than in any of its own steps: it repeats what all do."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.again import loop_in_its_step, made_again
from hangwatch.facts.case import Case
from hangwatch.facts.witness import Kind, Witness
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

_NO_RETRY = "never repeat a step on one rank alone once it has communicated: let all ranks vote on a retry"


def equal_turns(view: RankView) -> str:
    """The fix for the loop that makes the call of `view` again: it may go through items of that rank's own."""
    loop = loop_in_its_step(view)
    if loop is None:
        return _NO_RETRY
    return (
        f"let all ranks make the same number of turns in the loop at {words.place(loop.where)}: they must agree on what"
        " it goes through, or on a retry, before they communicate in it"
    )


def repeats_its_step(case: Case) -> Finding | None:
    """Few ranks stand in a call that they have made in this step already, as often as in every other step."""
    found = made_again(case) if case.in_trouble else ()
    if not found:
        return None
    ranks, first = tuple(each.rank for each in found), found[0]
    view = case.ranks[first.rank]
    habits = tuple(Witness(Kind.HABIT, each.counted) for each in found[: words.SHOWN])
    return Finding(
        "rank-zero-only-collective",
        case.weigh(habits),
        f"{case.name(ranks, capital=True)} repeated what all call, {first.call}{words.at(view.where)}, in"
        f" {words.step(first.step)}; since then {'its' if len(ranks) == 1 else 'their'} calls are mispaired.",
        fix=equal_turns(view),
        culprits=case.culprits(ranks),
        victims=tuple(rank for rank in case.blocked if rank not in ranks),
        step=first.step,
        witnesses=habits,
        status=case.failed,
        awaited=ranks,
    )
