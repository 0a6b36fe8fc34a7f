"""Ranks whose backward ended without all of its gradients: a parameter had no part in the loss, or an error ended it.

DistributedDataParallel reduces a bucket once all of its parameters have a gradient. A parameter that a batch leaves out
keeps its bucket from being reduced at all; backward returns, the rank goes on, and the others wait. The same follows
from an error within backward that the program catches. torch itself says so at the rank's next forward, if it comes to
one, and takes both for a parameter that was left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hangwatch.facts.call_site import Site, in_backward, in_the_engine, site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.last_calls import endings_of, frames_at_end
from hangwatch.facts.calls.skip_paths import ways_past
from hangwatch.facts.case import Case, once
from hangwatch.facts.differences.backwards import backwards_in
from hangwatch.facts.differences.caught_errors import caught_in_backward
from hangwatch.facts.differences.parting import Left, Parting, parting
from hangwatch.facts.rank_end import Why, ending
from hangwatch.model import Collective, ExceptionFacts, Frame, Phase, StepName
from hangwatch.ranks.last_words import Kind
from hangwatch.ranks.paces import WARM_UP
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import of_origin, origin, user_frame

TORCH_SAYS = re.compile(r"Expected to have finished reduction in the prior iteration")
_LEFT_OUT = re.compile(r"Parameters? (?:indices )?which did not receive grad for rank \d+:\s*(.+)")


@dataclass(frozen=True)
class Unreduced:
    """Ranks that left backward with gradients unreduced in `step`.

    `where` is the line of that backward, `parameters` what torch says had no gradient; `said` that torch has said so.
    `errors` are those that ended the backward on these ranks: on all of them, or there are none.
    """

    ranks: tuple[int, ...]
    step: StepName
    where: Frame | None = None
    parameters: str = ""
    said: bool = False
    found: Parting | None = None
    sure: bool = True  # no other backward of that step could be the one that these ranks were in
    waiting: tuple[int, ...] = ()
    errors: dict[int, ExceptionFacts] = field(default_factory=dict)


@once
def unreduced(case: Case) -> Unreduced | None:
    """Where a backward ended without its gradients; None where nothing shows it."""
    found = _said_by_torch(case) or _by_ledger(case) or _in_this_step(case)
    if found is None:
        return None
    found = found if found.parameters else replace(found, parameters=_lacking(case, found.ranks))
    errors = {rank: caught_in_backward(case.ranks.get(rank), found.step.step) for rank in found.ranks}
    ended_it = {rank: error for rank, error in errors.items() if error is not None}
    return replace(found, errors=ended_it) if len(ended_it) == len(errors) else found


def _lacking(case: Case, ranks: tuple[int, ...]) -> str:
    """The parameters that have no gradient on these ranks, if they are the same on all of them, and others have one."""
    names = {case.ranks[rank].evidence.collectives.without_gradients for rank in ranks if rank in case.ranks}
    return ", ".join(names.pop()) if len(names) == 1 else ""


# ------------------------------------------------------------------------------------------ by torch's error


def _said_by_torch(case: Case) -> Unreduced | None:
    said = [view for view in case if view.exception is not None and TORCH_SAYS.search(view.exception.message)]
    if not said or len(said) == len(case.ranks):
        return None  # on every rank it is the same parameter in every batch, and no rank waits for another
    view = min(said, key=lambda each: each.exception.at if each.exception is not None else 0.0)
    error = view.exception
    assert error is not None
    left_out = _LEFT_OUT.search(error.message)
    step = _own_divergence(case, view) or _before(view, error.at)
    if step is None:
        return None
    where = _backward_line(case, view) or _backward_line_of_others(case, view)
    return Unreduced(
        (view.rank,), step, where or user_frame(error.frames), left_out[1].strip() if left_out else "", said=True
    )


def refused_everywhere(case: Case) -> dict[int, str]:
    """By rank what torch says had no gradient, where its error ended every rank; empty where it did not.

    One that a program catches leaves its later calls mispaired, and these tell more.
    """
    errors = {view.rank: view.exception for view in case}
    said = {
        rank: found[1].strip() if (found := _LEFT_OUT.search(error.message)) else ""
        for rank, error in errors.items()
        if error is not None and error.fatal and TORCH_SAYS.search(error.message)
    }
    return said if len(said) == len(errors) > 0 else {}


def _own_divergence(case: Case, view: RankView) -> StepName | None:
    """The step in which this rank issued too few collectives: torch refuses each of its forwards from then on."""
    found = parting(case)
    return found.step if found is not None and found.how is Left.SKIPPED and view.rank in found.who else None


def _before(view: RankView, at: float) -> StepName | None:
    """The step before the one in which `view` was at that time: torch raises its error at the next forward."""
    begun = [entry for entry in view.evidence.board_steps if entry.at <= at or not at]
    if len(begun) < 2:
        return None
    return begun[-2].name


def _backward_line(case: Case, view: RankView) -> Frame | None:
    """The user's line from which the newest recorded gradients of `view` were computed."""
    for call in reversed(list(case.ledger.calls(view.rank).values())):
        if call.frames and in_backward(call):
            return _of_user(call.frames)
    return None


def _backward_line_of_others(case: Case, view: RankView) -> Frame | None:
    """Where the others stand in backward, if it is one line: they wait there for the gradients that it left out."""
    places = {each.where for each in case if each is not view and each.now.doing is Doing.BACKWARD}
    return places.pop() if len(places) == 1 else None


def _of_user(frames: tuple[Frame, ...]) -> Frame | None:
    """The line outside of torch that called backward, if it is the user's: what a framework's loop does is unknown."""
    own = of_origin(frames, "user", "package")
    return own[0] if own and origin(own[0].file) == "user" else None


# ------------------------------------------------------------------------------------------ by the ledgers


def _by_ledger(case: Case) -> Unreduced | None:
    """The ledgers differ in gradients, which no way past backward explains: the rank went on to its optimizer."""
    found, sites = parting(case), sites_of(case)
    if found is None or found.how is not Left.SKIPPED or not found.places or not found.who:
        return None
    counts = found.divergence.counts
    other = max(counts, key=lambda rank: counts[rank])
    if not all(sites.in_backward(other, place) for place in found.places):
        return None
    call = next(call for call in case.ledger.calls(other).values() if site(call) == found.places[0])
    where = _of_user(call.frames)
    passes = any(not way.of_turn for place in found.places for way in ways_past(case, place))
    if all(left_a_loop(case, rank, found) for rank in found.who):
        return None
    if passes or not all(_went_on(case, rank, found) for rank in found.who):
        return None
    if not _was_backward(case.views(found.who), found.divergence.step, seen=where is not None):
        return None
    sure = not any(reduced_elsewhere(case, rank, found) for rank in found.who)
    return Unreduced(found.who, found.step, where, found=found, sure=sure)


def left_a_loop(case: Case, rank: int, found: Parting) -> bool:
    """Its steps make several backwards from that line, by the sizes of their calls, and this one made fewer whole ones.

    Each backward of a model reduces the same buckets: the sizes repeat. Those of the buckets of one differ.
    """
    sites, step = sites_of(case), found.divergence.step
    if not all(sites.in_backward(rank, place) for place in found.places):
        return False
    earlier = [number for number in sites.by_step(rank) if WARM_UP <= number < step]
    sizes = [call.sizes for call in _from(case, rank, found, earlier[-1])] if earlier else []
    period = next((n for n in range(1, len(sizes)) if sizes[n:] == sizes[:-n] and len(sizes) % n == 0), len(sizes))
    if not period or period == len(sizes) or not all(sizes):
        return False
    return len(_from(case, rank, found, step)) % period == 0


def _from(case: Case, rank: int, found: Parting, step: int) -> list[Collective]:
    """The calls of that step from the places that `found` is about."""
    group = found.divergence.group
    span = case.ledger.span(rank, group, step)
    made = case.ledger.calls_between(rank, group, span) if span is not None else []
    return [call for call in made if site(call) in found.places]


def reduced_elsewhere(case: Case, rank: int, found: Parting) -> bool:
    """In that step it reduced gradients from other lines alone: whether it was in that backward too is not known."""
    sites = sites_of(case)
    inside = sites.inside(rank, found.divergence.group, found.divergence.step)
    made = {place for place, n in inside[0].items() if n and sites.in_backward(rank, place)} if inside else set()
    lacking = all(sites.in_backward(rank, place) for place in found.places)
    return lacking and bool(made) and made.isdisjoint(found.places)


def _went_on(case: Case, rank: int, found: Parting) -> bool:
    """Some of the gradients were reduced from the same place, or the optimizer has made its step of that turn."""
    view, sites = case.ranks.get(rank), sites_of(case)
    if view is None:
        return False
    inside = sites.inside(rank, found.divergence.group, found.divergence.step)
    partly = inside is not None and all(inside[0][place] for place in found.places)
    return partly or optimized(view, found.divergence.step)


def optimized(view: RankView, step: int) -> bool:
    """`view` has made an optimizer step within that step."""
    entries = view.evidence.board_steps
    index = next((n for n, entry in enumerate(entries) if entry.step == step), None)
    if index is None or view.reading is None:
        return False
    before = entries[index].optimizer_steps
    after = entries[index + 1].optimizer_steps if index + 1 < len(entries) else view.reading.progress.optimizer_steps
    return before is not None and after is not None and after > before


def _was_backward(views: Sequence[RankView], step: int, *, seen: bool) -> bool:
    """`views` called backward in that step, to synchronise. `seen`: no framework's loop may have left it out."""
    if any((made := backwards_in(view, step)) is not None and made.accumulates for view in views):
        return False
    known = [has_called_backward(view, step) for view in views]
    return all(known) or (seen and False not in known)


def has_called_backward(view: RankView, step: int) -> bool | None:
    """Whether `view` called backward in that step; None where that is not recorded, or it called it in a later one."""
    made = backwards_in(view, step)
    if made is not None:
        return made.begun
    newest = view.reading.progress.backward_step if view.reading is not None else None
    late = newest is not None and newest < step and view.dead  # the ticker had not put the last one on the board
    return None if newest is None or newest > step or late else newest == step


# ------------------------------------------------------------------------------------------ in this very step


def _in_this_step(case: Case) -> Unreduced | None:
    """A rank is past its optimizer's step with no gradients reduced, and others stand in that step's backward."""
    standing = {view.rank: _of_user(_wait(view)) for view in case if _in_backward(case, view)}
    waiting = {**standing, **dict.fromkeys(_ended_in_backward(case, standing))}
    if not waiting or len({case.ranks[rank].step for rank in waiting}) != 1:
        return None
    first = next(iter(waiting))
    step, where = case.ranks[first].step, waiting[first]
    others = [view for view in case if view.rank not in waiting]
    past = [view for view in others if view.step == step and step.step is not None and _without(case, view, step.step)]
    passes = any(
        not way.of_turn
        for call in case.ledger.calls(first).values()
        if (place := site(call)) is not None and sites_of(case).in_backward(first, place)
        for way in ways_past(case, place)
    )
    if not past or len(past) < len(others) or passes:
        return None
    if not _was_backward(past, step.step or 0, seen=where is not None or not standing):
        return None
    return Unreduced(tuple(view.rank for view in past), step, where, waiting=tuple(waiting))


def _wait(view: RankView) -> tuple[Frame, ...]:
    return _at_the_end(view) if view.failed else view.evidence.main_stack


def _in_backward(case: Case, view: RankView) -> bool:
    """`view` stands in a backward, or stood in one at its end, before the optimizer's step."""
    inside = in_the_engine(_wait(view))
    if not inside or not (view.failed or view.rank in case.blocked):
        return False
    step = view.step.step
    return step is not None and not optimized(view, step)


def _ended_in_backward(case: Case, standing: Iterable[int]) -> tuple[int, ...]:
    """Ranks that were ended without a last stack, where the backend ended a rank for a message of another size.

    By their boards they were behind a forward and before the optimizer, and had called nothing since: as a launcher
    ends them while C++ code reduces their gradients.
    """
    ends = endings_of(case).values()
    if not any(end.word is not None and end.word.kind is Kind.SIZE_MISMATCH for end in ends if end.by_backend):
        return ()
    return tuple(view.rank for view in case if view.rank not in standing and _left_in_backward(case, view))


def _left_in_backward(case: Case, view: RankView) -> bool:
    step = view.step.step
    if not view.dead or view.phase is not Phase.BACKWARD or step is None or _at_the_end(view):
        return False
    called = any(case.ledger.step_of(view.rank, call) == step for call in case.ledger.calls(view.rank).values())
    return not called and not optimized(view, step)


def _at_the_end(view: RankView) -> tuple[Frame, ...]:
    """Where it stood when its backend or a peer ended it: by its last stack, else by the stack of its error."""
    error = view.exception if ending(view).why is not Why.ITSELF else None
    return frames_at_end(view)[0] or (error.frames if error is not None else ())


def _without(case: Case, view: RankView, step: int) -> bool:
    """It is past the optimizer of `step`, and C++ code issued nothing in it, or less than before the same call earlier.

    That it called backward in that step says as much as what it did before: others reduce theirs there.
    """
    if not optimized(view, step):
        return False
    past = case.ledger.complete_steps(view.rank)
    groups = [group.name for group in case.ledger.groups_of(view.rank)]
    told = len(past) >= 2 or has_called_backward(view, step)
    return bool(told) and any(_lacks(case, view, name, step) for name in groups)


def _lacks(case: Case, view: RankView, group: str, step: int) -> bool:
    span = case.ledger.span(view.rank, group, step)
    if span is None:
        return False
    made = case.ledger.calls_between(view.rank, group, span)
    if view.dead and not made:
        return False  # its ticker may have died before it counted what C++ code issued last
    if len(made) < span[1] - span[0]:
        return bool(made) and _fewer(case, view, group, step)
    usual = case.ledger.usual(view.rank, group) or 0
    habit = bool(sites_of(case).synchronised(view.rank, group)) or usual > len(made)
    return (habit or bool(has_called_backward(view, step))) and not any(in_backward(call) for call in made)


def _fewer(case: Case, view: RankView, group: str, step: int) -> bool:
    """A part of the gradients: fewer calls of C++ code came before its last call than before the same call earlier.

    The number of a call from Python counts all before it, also on a rank that died: only such calls are compared.
    The first steps are left apart: torch forms its buckets anew after them.
    """
    now = _reduced_before(case, view, group, step)
    place = next(reversed(now), None)
    steps = [each.step for each in case.ledger.complete_steps(view.rank) if each.step >= WARM_UP]
    earlier = [before[place] for each in steps if place in (before := _reduced_before(case, view, group, each))]
    return place is not None and len(earlier) >= 2 and now[place] < min(earlier)


def _reduced_before(case: Case, view: RankView, group: str, step: int) -> dict[Site | None, int]:
    """How many calls of C++ code the rank had issued in `step` before the first call from each place, in order."""
    found: dict[Site | None, int] = {}
    span = case.ledger.span(view.rank, group, step)
    if span is None:
        return found
    python = (call for call in case.ledger.calls_between(view.rank, group, span) if not in_backward(call))
    for index, call in enumerate(python):
        found.setdefault(site(call), call.seq - span[0] - index - 1)
    return found
