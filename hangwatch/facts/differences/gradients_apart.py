"""Ranks that wait for the gradients of a step whose backward other ranks have ended without any.

Where gradients are accumulated, each rank has steps with and without a synchronisation: then one side's turn of the
rhythm came earlier. It shows at the first pair of calls that do not belong together, with no step completed since.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.call_site import in_backward
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.mismatches import Mismatch, both_ways, mispaired
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.drawn import all_of_it
from hangwatch.facts.differences.unreduced import optimized
from hangwatch.model import Collective, Phase
from hangwatch.stacks.activity import Within


@dataclass(frozen=True)
class GradientsApart:
    """`inside` wait for gradients of their present step, which `past` left out of theirs.

    `first` says that these are the first gradients that any rank synchronises, behind whole steps without an
    optimizer's.
    """

    inside: tuple[int, ...]
    past: tuple[int, ...]
    first: bool = False


@once
def gradients_apart(case: Case) -> GradientsApart | None:
    """Both sides, if all ranks have accumulated gradients before; None where one may have left backward out.

    The side that did without has ended a backward of that very step, and came to a call that it makes in other steps.
    """
    found = mispaired(case)
    if found is None:
        return None
    for inside, past in both_ways(found):
        if in_backward(found.calls[inside[0]]) and not in_backward(found.calls[past[0]]):
            everyone = (*inside, *past)
            first = all(_has_only_accumulated(case, rank, found) for rank in everyone)
            if not first and not all(_accumulates(case, rank, found) for rank in everyone):
                return None
            went_on = all(_has_ended_backward(case, rank, inside[0], found) for rank in past)
            usual = all(sites_of(case).used(rank, found.calls[rank]) for rank in past)
            return GradientsApart(inside, past, first) if went_on and usual else None
    return None


def _accumulates(case: Case, rank: int, found: Mismatch) -> bool:
    """Some steps of `rank` synchronised gradients, and some did not; older ones than any call count as neither."""
    steps = {step.step for step in case.ledger.complete_steps(rank)}
    made = sites_of(case).synchronised(rank, found.group.name)
    return bool(made) and made != {step for step in steps if step >= min(made)}


def _has_only_accumulated(case: Case, rank: int, found: Mismatch) -> bool:
    """Since its first step `rank` has completed some, and in none of them synchronised or made an optimizer's step.

    What comes behind the last batch is no part of that rhythm.
    """
    loader = case.ranks[rank].loader
    if loader is not None and (loader.exhausted or loader.left or all_of_it(loader, loader.drawn)):
        return False
    steps = {step.step for step in case.ledger.complete_steps(rank)}
    made = sites_of(case).synchronised(rank, found.group.name)
    return 0 in steps and not made and not any(optimized(case.ranks[rank], step) for step in steps)


def _has_ended_backward(case: Case, rank: int, inside: int, found: Mismatch) -> bool:
    """`rank` is behind the backward of the step in which `inside` is."""
    view, other = case.ranks[rank], case.ranks[inside]
    now, there = view.step.step, other.step.step
    if now is None or there is None or Within.BACKWARD not in other.now.within:
        return False
    between = view.phase is Phase.BACKWARD and Within.BACKWARD not in view.now.within  # a forward, and the optimizer
    return now > there or (now == there and between and not _comes_before_backward(case, rank, found))


def _comes_before_backward(case: Case, rank: int, found: Mismatch) -> bool:
    """In the last step that had both, `rank` made its present call before backward synchronised, as in a forward."""
    made: dict[int | None, list[Collective]] = {}
    for call in case.ledger.calls_in(rank, found.group.name):
        made.setdefault(case.ledger.step_of(rank, call), []).append(call)
    used = {case.ledger.step_of(rank, call): call for call in sites_of(case).used(rank, found.calls[rank])}
    now = case.ranks[rank].step.step
    both = [step for step in used if step is not None and step != now and any(map(in_backward, made[step]))]
    last = max(both, default=None)
    return last is not None and used[last].seq < next(call.seq for call in made[last] if in_backward(call))
