"""Ranks that ended their loop over another loader (validation, test) before the others, which are still in it.

A trainer may keep the iterator of a loop that counts its batches, and may draw ahead: what a loader shows is not always
where its loop is. The calls tell that: some ranks went on from a run of equal calls, and the others continued it. Where
a turn of the loop makes several calls, there is no such run; then those that went on must have come to the end of their
data. A loop that counts its batches does not ask for one more: the loader's length shows that end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from hangwatch.facts.call_site import site
from hangwatch.facts.calls.mismatches import (
    Mismatch,
    alike,
    both_ways,
    common_call,
    differing,
    mispaired,
    times_followed,
)
from hangwatch.facts.calls.runs import WentOn, first_apart, went_on
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.drawn import all_of_it
from hangwatch.facts.differences.other_loaders import other_loaders
from hangwatch.facts.differences.trainer_branches import parted
from hangwatch.model import Collective, LoaderFacts
from hangwatch.ranks.sides import spread


@dataclass(frozen=True)
class OtherLoop:
    """The ranks of `run` that went on had drawn fewer batches than the others; `drawn` has each rank's loader."""

    run: WentOn
    drawn: Mapping[int, LoaderFacts]

    @property
    def exhausted(self) -> bool:
        """Those that went on had no more data."""
        return all(_at_its_end(self.drawn[rank]) for rank in self.run.ranks)


@once
def other_loop_ended(case: Case) -> OtherLoop | None:
    """The first loader for which the ranks' calls and the batches that they drew say so."""
    run = went_on(case)
    if run is not None:
        found = (OtherLoop(run, each) for each in _drawn_from(case, run))
        return next((each for each in found if _is_past(case, each)), None)
    apart = (each for each in _called_apart(case) if next(_drawn_from(case, each), None))
    found = (OtherLoop(run, each) for run in apart for each in _drawn_from(case, run))
    return next((each for each in found if each.exhausted), None)


@once
def skipped_in_other_loop(case: Case) -> OtherLoop | None:
    """Ranks that are past such a loop with as many batches as the others, which still make calls of it."""
    for run in _called_apart(case):
        for drawn in _loaders(case, run):
            equal = len({each.drawn for each in drawn.values()}) == 1 and all(map(_at_its_end, drawn.values()))
            if equal and (_leaves(case, run) or _lacks_calls(case, run, drawn)):
                return OtherLoop(run, drawn)
    return None


def _lacks_calls(case: Case, run: WentOn, drawn: Mapping[int, LoaderFacts]) -> bool:
    """The others have made one such call for each batch, and those that have done with the epoch around it fewer."""
    batches = drawn[run.ranks[0]].drawn
    made = {rank: _made_in_step(case, rank, run.repeated) for rank in drawn}
    one_each = all(made[rank] == batches for rank in run.others) and all(made[rank] < batches for rank in run.ranks)
    return one_each and all(_is_further(case, rank, run.others) for rank in run.ranks)


def _made_in_step(case: Case, rank: int, call: Collective) -> int:
    calls = case.ledger.calls(rank).values()
    return sum(other.group == call.group and other.step == call.step and alike(other, call) for other in calls)


def _leaves(case: Case, run: WentOn) -> bool:
    """After the last common call the others went on as always, and `run.ranks` to a later line, as no rank had before.

    By the source of the package's function that leads to both calls: in the same turn of its loops, not in the next.
    """
    before = case.ledger.call(run.ranks[0], run.reached.group, run.seq - 1)
    there = parted(run.reached.frames, before.frames) if before is not None else None
    if before is None or there is None or there[1].line >= there[0].line:
        return False
    others = (times_followed(case, rank, before, run.repeated) for rank in run.others)
    return all(others) and not any(times_followed(case, rank, before, run.reached) for rank in run.ranks)


def _called_apart(case: Case) -> Iterator[WentOn]:
    """At the first calls from different places, either side as the one that went on; the other one made a known call.

    All had made the same call before, so that no rank had left out one or made one too many until then.
    """
    found = _first_unlike(case)
    if found is None or common_call(case, found.group, found.seq - 1, found.group.members) is None:
        return
    for again, left in both_ways(found):
        reached, repeated = found.calls[left[0]], found.calls[again[0]]
        if all(_made_before(case, rank, found.calls[rank]) for rank in again):
            yield WentOn(left, again, found.seq, reached, repeated, made=0)


def _first_unlike(case: Case) -> Mismatch | None:
    """The pair that shows that calls are mispaired, or the first one with unlike paths: alike in kind, in silence."""
    found = mispaired(case)
    if found is None:
        return None
    asked = [rank for side in differing(found.calls).values() for rank in spread(side)]
    seq = first_apart(case, asked, found.group.name, found.seq)
    calls = case.ledger.under(found.group.name, seq, found.calls) if seq is not None else {}
    return replace(found, seq=seq, calls=calls) if seq is not None and calls.keys() == found.calls.keys() else found


def _made_before(case: Case, rank: int, call: Collective) -> bool:
    calls = case.ledger.calls(rank).values()
    return any(other.seq < call.seq and other.group == call.group and site(other) == site(call) for other in calls)


def _drawn_from(case: Case, run: WentOn) -> Iterator[dict[int, LoaderFacts]]:
    """The loaders from which those that went on drew fewer batches."""
    for found in _loaders(case, run):
        most = max(found[rank].drawn for rank in run.ranks)
        if 0 < most < min(found[rank].drawn for rank in run.others):
            yield found


def _loaders(case: Case, run: WentOn) -> Iterator[dict[int, LoaderFacts]]:
    """The loaders besides the training one that all ranks have, in the same epoch of it."""
    views = [case.ranks[rank] for rank in (*run.ranks, *run.others) if rank in case.ranks]
    for index in sorted({loader.index for view in views for loader in other_loaders(view)}):
        found = {view.rank: each for view in views for each in other_loaders(view) if each.index == index}
        if len(found) == len(run.ranks) + len(run.others) and len({each.epoch for each in found.values()}) == 1:
            yield found


def _is_past(case: Case, loop: OtherLoop) -> bool:
    """Each of those that went on has ended its loop over that loader, and the others have not.

    All may have exhausted it: the others made another call of the run then, on batches that they had drawn ahead. Where
    the loader does not show it, the one they train on may: those that went on are further in it, or have done with it.
    """
    run, drawn = loop.run, loop.drawn
    if any(drawn[rank].left or (drawn[rank].exhausted and not loop.exhausted) for rank in run.others):
        return False
    return all(
        drawn[rank].left or _at_its_end(drawn[rank]) or _is_further(case, rank, run.others) for rank in run.ranks
    )


def _is_further(case: Case, rank: int, others: Collection[int]) -> bool:
    """It is further in the loader that it trains on than all of them, or has done with it."""
    mine, *theirs = (view.loader for view in case.views((rank, *others)))
    inside = [_came_to(loader) for loader in theirs if loader is not None]
    return mine is not None and len(inside) == len(others) and _came_to(mine) > max(inside)


def _at_its_end(loader: LoaderFacts) -> bool:
    return loader.exhausted or all_of_it(loader, loader.drawn)


def _came_to(loader: LoaderFacts) -> tuple[int, bool]:
    """The epoch of the training loader, and whether its loop has been ended in it."""
    return loader.epoch, loader.left or loader.exhausted
