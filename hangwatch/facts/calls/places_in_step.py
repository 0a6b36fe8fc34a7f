"""At which place of its step a rank makes a call: before one that comes earlier than ever, calls are missing.

The board records what Python code calls, and of DDP's own collectives only how many there were. So the number of a call
within its step says how many came before it, also on a rank that has died and on a torch without a flight recorder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from hangwatch.facts.call_site import Site, site
from hangwatch.facts.case import Case, once
from hangwatch.facts.rank_end import ending
from hangwatch.model import Collective, StepEntry
from hangwatch.ranks.ledger import Group, is_numbered
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Within

OfStep = dict[tuple[str, Site], list[Collective]]  # the calls of one step, by group and site
Made = dict[int, OfStep]
HABITUAL_STEPS = 3  # earlier steps in a row with the call at one place


@dataclass(frozen=True)
class Early:
    """`call` was number `place` of its group in `step`, and `usual` in each of the `steps` steps before.

    Where `own` is set, that is true of a collective of DDP's own, of which the board has no record; `call` is then the
    one that had its number in the step before.
    """

    rank: int
    call: Collective
    step: StepEntry
    place: int
    usual: int
    steps: int
    own: bool = False

    @property
    def missing(self) -> int:
        return self.usual - self.place


@once
def early_calls(case: Case) -> tuple[Early, ...]:
    """For each rank the first call of its last step that came earlier than by its habit, and not so on another rank."""
    found = (_early(view) or _early_own(case, view) for view in case)
    return tuple(each for each in found if each is not None and _is_another_call_elsewhere(case, each))


def _is_another_call_elsewhere(case: Case, early: Early) -> bool:
    """Another rank has issued that number too, and not from the same place: else all may have changed their habit."""
    group = case.ledger.group(early.rank, early.call.group)
    number = early.step.issued.get(early.call.group, 0) + early.place
    theirs = [
        case.ledger.call(rank, early.call.group, number)
        for rank in (group.members if group is not None else ())
        if rank != early.rank and group is not None and (group.issued(rank) or 0) >= number
    ]
    if early.own:  # here the call that it left out
        return any(call is not None and site(call) == site(early.call) for call in theirs)
    return any(call is None or site(call) != site(early.call) for call in theirs)


def _last_steps(view: RankView) -> tuple[StepEntry, ...]:
    """The present step behind as many as make a habit; none where fewer follow each other."""
    steps = view.evidence.board_steps[-HABITUAL_STEPS - 1 :]
    whole = len(steps) > HABITUAL_STEPS and steps[-1].step - steps[0].step == HABITUAL_STEPS
    return steps if whole else ()


def _early(view: RankView) -> Early | None:
    steps = _last_steps(view)
    if not steps:
        return None
    now, before = steps[-1], steps[:-1]
    made = _by_step(view, before[0].step)
    for where, (call, *more) in made.get(now.step, {}).items():
        earlier = [made.get(entry.step, {}).get(where, []) for entry in before]
        if more or any(len(calls) != 1 for calls in earlier):
            continue  # of several calls from one site in a step it is not known which is missing
        usual = {_place(calls[0], entry) for calls, entry in zip(earlier, before, strict=True)}
        if len(usual) == 1 and 0 < _place(call, now) < min(usual):
            return Early(view.rank, call, now, _place(call, now), usual.pop(), len(before))
    return None


def _early_own(case: Case, view: RankView) -> Early | None:
    """DDP's own collective under a number of its step that a call of the program's had in every step before."""
    steps = _last_steps(view)
    if not steps:
        return None
    made = _by_step(view, steps[0].step)
    found = (_own_of_group(case, view, steps, made, group) for group in case.ledger.groups_of(view.rank))
    return next((each for each in found if each is not None), None)


def _own_of_group(case: Case, view: RankView, steps: Sequence[StepEntry], made: Made, group: Group) -> Early | None:
    known = [_numbers(made.get(entry.step, {}), entry, group.name) for entry in steps]
    begun = [entry.issued.get(group.name, 0) for entry in steps]
    now = max(group.issued(view.rank) or 0, begun[-1] + len(known[-1]) + _waits_in_backward(case, view))
    counts = [end - start for start, end in pairwise((*begun, now))]
    *before, own = (
        [n for n in range(1, count + 1) if n not in calls] for count, calls in zip(counts, known, strict=True)
    )
    if any(each != before[0] for each in before):
        return None
    place, usual = next(((mine, habit) for mine, habit in zip(own, before[0], strict=False) if mine != habit), (0, 0))
    calls = [numbers.get(place) for numbers in known[:-1]]
    left_out = calls[-1]
    if left_out is None or place > usual or any(call is None or site(call) != site(left_out) for call in calls):
        return None
    return Early(view.rank, left_out, steps[-1], place, usual, len(before), own=True)


def _waits_in_backward(case: Case, view: RankView) -> bool:
    """It is, or ended, in a collective of its gradients, which it may have been the last to count."""
    if Within.BACKWARD not in view.now.within or not view.now.in_collective:
        return False
    return ending(view).of_another if view.failed else view.rank in case.blocked


def _numbers(made: OfStep, step: StepEntry, group: str) -> dict[int, Collective]:
    """The calls of a step on the board by their number in it."""
    calls = (call for (name, _), found in made.items() if name == group for call in found)
    return {_place(call, step): call for call in calls}


def _by_step(view: RankView, first: int) -> Made:
    """The collectives on the board by step, from `first` on, and by group and site; older ones are not read."""
    found: Made = {}
    ring = reversed(view.evidence.board_calls)
    recent = list(takewhile(lambda call: call.step is None or call.step >= first, ring))
    for call in reversed(recent):
        where = site(call) if is_numbered(call) else None
        if where is not None and call.step is not None:
            found.setdefault(call.step, {}).setdefault((call.group, where), []).append(call)
    return found


def _place(call: Collective, step: StepEntry) -> int:
    return call.seq - step.issued.get(call.group, 0)
