"""At which place of its step a rank makes a call: before one that comes earlier than ever, calls are missing.

The board records what Python code calls, and of DDP's own collectives only how many there were. So the number of a call
within its step says how many came before it, also on a rank that has died and on a torch without a flight recorder.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from hangwatch.facts.call_site import Site, in_backward, site
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, StepEntry
from hangwatch.ranks.view import RankView

HABITUAL_STEPS = 3  # earlier steps in a row with the call at one place


@dataclass(frozen=True)
class Early:
    """`call` was number `place` of its group in `step`, and `usual` in each of the `steps` steps before."""

    rank: int
    call: Collective
    step: StepEntry
    place: int
    usual: int
    steps: int

    @property
    def missing(self) -> int:
        return self.usual - self.place


@once
def early_calls(case: Case) -> tuple[Early, ...]:
    """For each rank the first call of its last step that came earlier than by its habit, and not so on another rank."""
    found = (_early(case, view) for view in case)
    return tuple(each for each in found if each is not None and _is_another_call_elsewhere(case, each))


def _is_another_call_elsewhere(case: Case, early: Early) -> bool:
    """Another rank has issued that number too, and not from the same place: else all may have changed their habit."""
    group = case.ledger.group(early.rank, early.call.group)
    number = early.call.seq
    theirs = [
        case.ledger.call(rank, early.call.group, number)
        for rank in (group.members if group is not None else ())
        if rank != early.rank and group is not None and (group.issued(rank) or 0) >= number
    ]
    return any(call is None or site(call) != site(early.call) for call in theirs)


def _early(case: Case, view: RankView) -> Early | None:
    steps = view.reading.steps if view.reading is not None else ()
    places: defaultdict[tuple[str, Site], list[tuple[StepEntry, Collective, int]]] = defaultdict(list)
    for (group, seq), call in case.ledger.calls(view.rank).items():
        where = site(call)
        index = bisect_left(steps, call.step, key=lambda entry: entry.step) if call.step is not None else len(steps)
        if where is None or in_backward(call) or index == len(steps) or steps[index].step != call.step:
            continue
        places[group, where].append((steps[index], call, seq - steps[index].issued.get(group, 0)))
    found = (_against_habit(view.rank, made, steps[-1]) for made in places.values())
    return min((each for each in found if each is not None), key=lambda each: each.call.seq, default=None)


def _against_habit(rank: int, made: list[tuple[StepEntry, Collective, int]], now: StepEntry) -> Early | None:
    """The newest of the calls from one site, if it is of the last step, and each of those before had another place."""
    made = sorted(made, key=lambda each: each[1].seq)[-HABITUAL_STEPS - 1 :]
    (step, call, place), before = made[-1], made[:-1]
    in_a_row = all(later[0].step - earlier[0].step == 1 for earlier, later in pairwise(made))
    usual = {each[2] for each in before}
    if step is not now or len(before) < HABITUAL_STEPS or not in_a_row or len(usual) != 1 or not 0 < place < min(usual):
        return None
    return Early(rank, call, step, place, usual.pop(), len(before))
