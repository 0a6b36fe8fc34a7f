"""A rank that tried its step again after an error that no other rank met: it made the calls of one step more.

Each step of it has as many calls as those of the others, and they are paired with each other. What comes once in so
many steps shows the difference: it comes on the others, while that rank still has a step to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.inner_loops import tried_again
from hangwatch.facts.case import Case, once
from hangwatch.facts.differences.caught_errors import all_caught
from hangwatch.facts.differences.parting import two_sides
from hangwatch.model import Bypass, Divergence, ExceptionFacts
from hangwatch.ranks.sides import fewer_of
from hangwatch.stacks.frames import user_frame


@dataclass(frozen=True)
class TriedAgain:
    """The first error of each rank after which it tried again, the clauses that catch it, and what differs since."""

    errors: dict[int, ExceptionFacts]
    clauses: tuple[Bypass, ...]
    divergence: Divergence


@once
def tried_again_before(case: Case) -> TriedAgain | None:
    """Before the first step in which the numbers of calls differ, the few ranks on the one side caught such an error.

    Each of them is in a later step than all others.
    """
    first = next(iter(case.divergences), None)
    sides = two_sides(case, first) if first is not None and first.exact else None
    odd = fewer_of(*sides) if sides is not None else ()
    if first is None or not odd or not case.ranks.keys() >= {*odd} or not _are_ahead(case, odd):
        return None
    others = {_kind(error) for view in case if view.rank not in odd for error in all_caught(view)}
    errors: dict[int, ExceptionFacts] = {}
    clauses: tuple[Bypass, ...] = ()
    for rank in odd:
        clauses = tried_again(case, sites_of(case).lines_now(rank))
        before = (
            error for error in all_caught(case.ranks[rank]) if _is_before(error, first) and _kind(error) not in others
        )
        error = next((each for each in before if _goes_through(each, clauses)), None)
        if error is None:
            return None
        errors[rank] = error
    return TriedAgain(errors, clauses, first)


def _are_ahead(case: Case, odd: Sequence[int]) -> bool:
    others = [view.step.step for view in case if view.rank not in odd]
    mine = [view.step.step for view in case.views(odd)]
    most = max((step for step in others if step is not None), default=None)
    return most is not None and None not in mine and all(step is not None and step > most for step in mine)


def _kind(error: ExceptionFacts) -> tuple[str, object]:
    return error.type, user_frame(error.frames)


def _is_before(error: ExceptionFacts, divergence: Divergence) -> bool:
    return error.step is not None and error.step < divergence.step


def _goes_through(error: ExceptionFacts, clauses: tuple[Bypass, ...]) -> bool:
    """It left the function below such a clause, or below a decorator."""
    return any(
        frame.file == way.where.file and (frame.scope == way.where.scope or way.text.startswith("@"))
        for way in clauses
        for frame in error.frames
    )
