"""At which place of its step a rank makes a call: before one that comes earlier than ever, calls are missing.

The board records what Python code calls, and of DDP's own collectives only how many there were. So the number of a call
within its step says how many came before it, also on a rank that has died and on a torch without a flight recorder.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from hangwatch.facts.call_site import Site, site
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, StepEntry
from hangwatch.ranks.ledger import is_numbered
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
    found = map(_early, case)
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


def _early(view: RankView) -> Early | None:
    steps = view.evidence.board_steps[-HABITUAL_STEPS - 1 :]
    if len(steps) <= HABITUAL_STEPS or steps[-1].step - steps[0].step != HABITUAL_STEPS:
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


def _by_step(view: RankView, first: int) -> dict[int, dict[tuple[str, Site], list[Collective]]]:
    """The collectives on the board by step, from `first` on, and by group and site; older ones are not read."""
    found: dict[int, dict[tuple[str, Site], list[Collective]]] = {}
    ring = reversed(view.evidence.board_calls)
    recent = list(takewhile(lambda call: call.step is None or call.step >= first, ring))
    for call in reversed(recent):
        where = site(call) if is_numbered(call) else None
        if where is not None and call.step is not None:
            found.setdefault(call.step, {}).setdefault((call.group, where), []).append(call)
    return found


def _place(call: Collective, step: StepEntry) -> int:
    return call.seq - step.issued.get(call.group, 0)
