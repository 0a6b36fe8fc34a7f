"""What speaks for calls being one too many, and not for the others having left them out."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.facts.case import Case
from hangwatch.facts.skip_paths import asked_for_the_rank, rank_check
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Collective


def most_or_the_source(
    case: Case, call: Collective, makers: Sequence[int], others: Sequence[int]
) -> tuple[Witness, ...]:
    """Most ranks made no such call, or the source asks for the rank before it."""
    heard = []
    if len(makers) < len(others):
        heard.append(Witness(Kind.MAJORITY, f"most ranks made no such call: {case.name(others)}"))
    if (guard := rank_check(case, call.frames)) is not None:
        heard.append(Witness(Kind.SOURCE, asked_for_the_rank(guard)))
    return tuple(heard)
