"""Ranks that repeat collectives in their backward, because they alone ran that part of the model by checkpoint()."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.recomputed import recomputed_alone
from hangwatch.facts.case import Case
from hangwatch.model import Certainty
from hangwatch.ranks.sides import odd_of
from hangwatch.rules.finding import Finding

_FIX = (
    "use checkpoint() on all ranks or on none, by what is the same on all of them; or keep collectives out of what is"
    " checkpointed: the backward repeats that"
)


def repeated_in_the_backward(case: Case) -> Finding | None:
    """Gradient checkpointing repeats a part of the forward, and its collectives with it, on some ranks alone."""
    found = recomputed_alone(case) if case.in_trouble else None
    if found is None:
        return None
    odd = odd_of(found.ranks, found.others)
    repeats = case.say(found.ranks, "repeats", "repeat", capital=True)
    its = words.verb(len(found.ranks), "its", "their")
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"{repeats} {found.call.op}{words.at(found.line)} in {its} backward, as gradient checkpointing does"
        f"{words.at(found.where)}; {case.name(found.others)} ran that part of the model without it, and"
        f" {words.verb(len(found.others), 'makes', 'make')} that call once.",
        fix=_FIX,
        culprits=case.culprits(odd, found.where or found.line),
        victims=case.victims(odd),
        step=case.ranks[odd[0]].step,
        evidence=(
            f"{case.name(found.ranks)} called {found.call.op}{words.at(found.line)} below checkpoint() in the backward",
            f"no recorded call of {case.name(found.others)} was made so",
        ),
        status=case.failed_status,
    )
