"""What speaks for calls being one too many, and not for the others having left them out."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.skip_paths import ways_to
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass, Collective


def most_or_the_source(
    case: Case, call: Collective, makers: Sequence[int], others: Sequence[int]
) -> tuple[Witness, ...]:
    """Most ranks made no such call, or the source asks for the rank before it."""
    heard = []
    if len(makers) < len(others):
        heard.append(Witness(Kind.MAJORITY, f"most ranks made no such call: {case.name(others)}"))
    if (guard := rank_check(case, call)) is not None:
        says = f"the source asks for the rank at {words.place(guard.where)} (`{guard.text}`)"
        heard.append(Witness(Kind.SOURCE, says))
    return tuple(heard)


def rank_check(case: Case, call: Collective) -> Bypass | None:
    """The condition on the rank that leads to `call`."""
    return next((way for way in ways_to(case, call) if way.asks == "rank"), None)
