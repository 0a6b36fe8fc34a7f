"""Errors that the program caught, in the very step in which its rank began to differ from the others.

An error that leaves the model's forward, a backward or a DataLoader, or that the program puts in words as it handles
it, is on the board with the step in progress (`hangwatch_agent.rank.hooks`). Many programs handle such errors as a
matter of course. One that a rank caught in the step in which it issued fewer collectives than the others is why it did.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.call_site import in_the_engine
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import first_uneven
from hangwatch.facts.differences.parting import two_sides
from hangwatch.facts.processes.store_waits import store_ports, waits_for_key
from hangwatch.facts.rank_end import follows
from hangwatch.model import Divergence, ExceptionFacts
from hangwatch.ranks.begun_anew import loader_error
from hangwatch.ranks.issuers import MAIN
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Within

_DDP = "torch/nn/parallel/distributed.py"


@dataclass(frozen=True)
class Caught:
    """The ranks that issued fewer collectives in the step of `divergence`, each with the error that it caught then."""

    errors: dict[int, ExceptionFacts]
    divergence: Divergence


@once
def caught_in_its_step(case: Case) -> Caught | None:
    """The first difference between the ledgers, if all ranks on its one side caught an error then, and no other did."""
    first = next(iter(case.divergences), None)
    sides = two_sides(case, first) if first is not None and first.exact and not first.doubtful else None
    if first is None or sides is None:
        return None
    few, many = sides
    errors = {rank: error for rank in few if (error := caught_in(case.ranks.get(rank), first.step)) is not None}
    if len(errors) < len(few) or any(caught_in(case.ranks.get(rank), first.step) for rank in many):
        return None
    return Caught(errors, first)


@once
def caught_before_backward(case: Case) -> dict[int, ExceptionFacts]:
    """The ranks that caught an error in the step in whose backward all others are, or have ended, and are in none.

    The stages of a pipeline wait in sends and receives as well, and those of its replicas in what follows them: there
    the error must be the first of its kind.
    """
    last = {view.rank: error for view in case if (error := last_caught(view)) is not None}
    found = {rank: error for rank, error in last.items() if _went_on(case, case.ranks[rank], error)}
    steps = {case.ranks[rank].step.step for rank in found}
    others = [view for view in case if view.rank not in found]
    in_it = all(view.step.step in steps and _in_its_backward(view) for view in others) or (
        all(view.step.step in steps and view.rank in case.blocked for view in others)
        and any(waits_for_a_peer(case, view) for view in others)
        and all(_is_first_of_its_kind(case.ranks[rank], error) for rank, error in found.items())
    )
    out_of_it = all(Within.BACKWARD not in case.ranks[rank].now.within for rank in found)
    return found if len(steps) == 1 and len(found) <= len(others) and in_it and out_of_it else {}


@once
def caught_before_a_key(case: Case) -> dict[int, ExceptionFacts]:
    """The ranks that caught an error in their last step, and no other did, where all living ranks wait for a store.

    What keys they wait for is not known. So the error must be the first of its kind, for others are handled as they
    come, and its step one that the others went on from: what came of it is missing since then.
    """
    living = [view for view in case if not view.dead]
    last = {view.rank: error for view in living if (error := last_caught(view)) is not None}
    ports = store_ports(case) if last else frozenset()
    if not last or not all(view.rank in case.blocked or waits_for_key(view, ports) for view in living):
        return {}
    later = [view.step.step for view in living if view.rank not in last and view.step.step is not None]
    behind = bool(later) and all((error.step or 0) < min(later) for error in last.values())
    first = behind and all(_is_first_of_its_kind(case.ranks[rank], error) for rank, error in last.items())
    few = 2 * len(last) <= len(living) and any(waits_for_key(view, ports) for view in living if view.rank not in last)
    return last if first and few else {}


@once
def caught_at_its_data(case: Case) -> dict[int, ExceptionFacts]:
    """The ranks whose loader raised an error with data left, and that have begun to draw anew since then.

    In the first epoch in which ranks drew unlike numbers of batches; empty unless each rank that left it did so.
    """
    uneven = first_uneven(case)
    left = case.views(uneven.left_with_data) if uneven is not None else []
    if uneven is None or not left or len(left) == len(uneven.drawn):
        return {}
    anew = [view for view in left if view.loader is not None and view.loader.epoch > uneven.epoch]
    errors = {view.rank: error for view in anew if (error := _of_its_loader(view, uneven.epoch)) is not None}
    return errors if len(errors) == len(left) else {}


def _of_its_loader(view: RankView, epoch: int) -> ExceptionFacts | None:
    error = loader_error(view.reading, epoch) if view.reading is not None else None
    return error if error in all_caught(view) else None


def _in_its_backward(view: RankView) -> bool:
    """It stands in the backward of its step, or lost a peer there, if the program has caught that and gone on."""
    if Within.BACKWARD in view.now.within:
        return True
    errors = view.reading.caught if view.reading is not None else ()
    lost = (error for error in errors if follows(error))
    return any(error.step == view.step.step and within_backward(error) for error in lost)


def waits_for_a_peer(case: Case, view: RankView) -> bool:
    """It is in a send or receive, the other side of which does not come."""
    return view.rank in case.blocked and case.blocked[view.rank].to_a_peer


def _is_first_of_its_kind(view: RankView, error: ExceptionFacts) -> bool:
    return [each.type for each in all_caught(view)].count(error.type) == 1


def _went_on(case: Case, view: RankView, error: ExceptionFacts) -> bool:
    """It left a forward or backward, or its rank is in a call already: any other may have come before the forward."""
    of_forward = any(frame.file.endswith(_DDP) for frame in error.frames)
    return of_forward or within_backward(error) or view.rank in case.blocked or view.failed


def last_caught(view: RankView) -> ExceptionFacts | None:
    """The last error that `view` is known to have caught, if it has begun no step since."""
    step = view.step.step
    return caught_in(view, step) if step is not None else None


def caught_in_backward(view: RankView | None, step: int | None) -> ExceptionFacts | None:
    """The error that ended a backward of `view` in `step`, and that the program caught."""
    error = caught_in(view, step) if step is not None else None
    return error if error is not None and within_backward(error) else None


def within_backward(error: ExceptionFacts) -> bool:
    """It was raised by what torch's engine runs."""
    return in_the_engine(error.frames)


def caught_in(view: RankView | None, step: int) -> ExceptionFacts | None:
    """What the main thread caught in `step`; no error that follows from another rank's end."""
    return next((error for error in all_caught(view) if error.step == step), None)


def all_caught(view: RankView | None) -> list[ExceptionFacts]:
    """The last few errors that the main thread caught; none that follows from another rank's end.

    One that left a forward, and its program at last, is on the board twice: nothing has caught it.
    """
    if view is None or view.reading is None:
        return []
    of_main = (error for error in view.reading.caught if error.thread in ("", MAIN))
    return [error for error in of_main if not (follows(error) or _ended(view, error))]


def _ended(view: RankView, error: ExceptionFacts) -> bool:
    """It is the error on its way out of the program, or it has ended it; of one on its way less text is kept."""
    last = view.exception if view.raised else None
    if last is None or (last.type, last.step) != (error.type, error.step):
        return False
    return last.message.startswith(error.message) if error.message else not last.message
