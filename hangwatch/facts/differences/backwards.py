"""What the backwards of a step were, by the ranks' own records: begun or not, and synchronised by DDP or not.

A rank says in which steps it began to compute gradients, and in which DDP was told not to synchronise a training
forward (`no_sync()`, which trainers call for the batches that they accumulate). So a step in which a rank issued no
gradients tells by itself whether that rank accumulated them, or made no backward at all. Nothing said is no evidence:
what torch.compile has made of a model is not seen, and records of older versions lack these facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from hangwatch.facts.calls.call_sites import HABIT
from hangwatch.facts.case import Case, once
from hangwatch.model import StepName
from hangwatch.ranks.sides import by_value
from hangwatch.ranks.view import RankView


class Backwards(NamedTuple):
    """Of one rank in one step: gradients began to be computed, and a training forward was not to be synchronised."""

    begun: bool
    accumulated: bool

    @property
    def accumulates(self) -> bool:
        """Gradients were kept for a later step."""
        return self.begun and self.accumulated

    @property
    def synchronises(self) -> bool:
        return self.begun and not self.accumulated


@dataclass(frozen=True)
class BackwardsApart:
    """The first recorded step in which the ranks' backwards were unlike: `made` are those of each rank.

    `together` are the steps before it in which all ranks synchronised, and `interval` is the one between each two of
    them, None where they had no rhythm. `always` is the number of recorded steps before it, if all ranks made a
    backward in each of them; else 0.
    """

    step: StepName
    made: dict[int, Backwards]
    together: tuple[int, ...]
    always: int

    @property
    def interval(self) -> int | None:
        gaps = [after - before for before, after in pairwise(self.together)]
        return gaps[0] if len(gaps) >= HABIT and len(set(gaps)) == 1 else None

    @property
    def due(self) -> bool | None:
        """Whether gradients were to be synchronised in that step by the rhythm of all; None where that is not known."""
        if self.interval is None or self.step.step is None:
            return None
        since = self.step.step - self.together[-1]
        return since == self.interval if since <= self.interval else None

    @property
    def without(self) -> tuple[int, ...]:
        """The ranks that began no backward in that step."""
        return tuple(rank for rank, each in self.made.items() if not each.begun)

    @property
    def accumulating(self) -> tuple[int, ...]:
        return tuple(rank for rank, each in self.made.items() if each.accumulates)

    @property
    def synchronising(self) -> tuple[int, ...]:
        return tuple(rank for rank, each in self.made.items() if each.synchronises)


@once
def backwards_apart(case: Case) -> BackwardsApart | None:
    """Where the ranks' backwards became unlike; None where they did not, or where steps were no longer the same.

    What follows was of other batches, and shows nothing: a rank that lost one backward counts otherwise from then on.
    """
    if len(case.ranks) < case.size or not any(_accumulates(view) for view in case):
        return None
    alike = by_value({view.rank: _record(view) for view in case})
    steps = {record: {step.number: step for step in record} for record in alike}
    together, begun = list[int](), list[bool]()
    for number in sorted(set.intersection(*map(set, steps.values()))):
        found = {record: each[number] for record, each in steps.items()}
        if len({step.name for step in found.values()}) > 1:
            return None
        if len({step.made for step in found.values()}) > 1:
            if any(step.goes_on and not step.made.synchronises for step in found.values()):
                return None  # its backward may be yet to come
            made = {rank: found[record].made for record, ranks in alike.items() for rank in ranks}
            name, always = next(iter(found.values())).name, len(begun) if all(begun) else 0
            return BackwardsApart(name, dict(sorted(made.items())), tuple(together), always)
        begun.append(all(step.made.begun for step in found.values()))
        if all(step.made.synchronises for step in found.values()):
            together.append(number)
    return None


def parted_from_together(case: Case) -> BackwardsApart | None:
    """The same in a job that stands for it: all had synchronised in the same steps before, and no rank computes now."""
    found = backwards_apart(case) if case.in_trouble and case.all_wait else None
    return found if found is not None and found.together else None


def backwards_in(view: RankView, step: int) -> Backwards | None:
    """What `view` did in that step; None where that is not on record."""
    entries = view.evidence.board_steps if _accumulates(view) else ()
    return next((_behind(view, place) for place, entry in enumerate(entries) if entry.step == step), None)


class _Step(NamedTuple):
    number: int
    name: StepName
    made: Backwards
    goes_on: bool  # it is the rank's present one


def _accumulates(view: RankView) -> bool:
    """A rank that never does may be of a version that does not say so: then nothing is known of its steps."""
    return view.reading is not None and view.reading.progress.accumulated_step is not None


def _record(view: RankView) -> tuple[_Step, ...]:
    """What a rank did in each step."""
    entries = view.evidence.board_steps if _accumulates(view) else ()
    return tuple(
        _Step(entry.step, entry.name, _behind(view, place), entry is entries[-1]) for place, entry in enumerate(entries)
    )


def _behind(view: RankView, place: int) -> Backwards:
    """What the entry of the next step, or the rank's present state, says of the step at that place of its ledger."""
    entries, reading = view.evidence.board_steps, view.reading
    assert reading is not None
    step, later = entries[place].step, entries[place + 1] if place + 1 < len(entries) else reading.progress
    return Backwards(later.backward_step == step, later.accumulated_step == step)
