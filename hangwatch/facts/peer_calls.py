"""Sends and receives that a rank left out, against its own habit, and for which a peer waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import takewhile

from hangwatch.facts.call_site import site
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, StepEntry
from hangwatch.proof.waits import Blocked, serves
from hangwatch.ranks.ledger import is_point_to_point

HABIT = 2  # earlier steps with equally many calls that make a habit


@dataclass(frozen=True)
class LeftOut:
    """`rank` made `made` calls of this kind in `step`, and `usually` in each of `steps` steps before it."""

    rank: int
    waiting: Blocked  # the peer, in the call that has no counterpart
    usual: Collective  # the last such call of `rank` before that step
    step: StepEntry
    made: int
    usually: int
    steps: int


@once
def left_out_to_a_peer(case: Case) -> LeftOut | None:
    """A call for which a peer waits, which its rank made in each earlier step and has passed in its last one."""
    for entry in case.blocked.values():
        call = entry.call
        if call is None or call.peer not in case.ranks or not entry.to_a_peer:
            continue
        found = _against_habit(case, entry, call, case.ranks[call.peer].rank)
        if found is not None:
            return found
    return None


def _against_habit(case: Case, entry: Blocked, call: Collective, rank: int) -> LeftOut | None:
    """What `rank` left out in the newest step in which it had passed its usual place of the call's counterpart."""
    counterpart = "recv" if "send" in call.op else "send"
    steps = _by_step(case, rank)
    made = [[each for each in calls if serves(each, counterpart, entry.rank, call)] for _, calls in steps]
    for index in range(len(steps) - 1, HABIT - 1, -1):
        usual, usually = made[index - 1], len(made[index - 1])
        habit = sum(1 for _ in takewhile(usually.__eq__, map(len, reversed(made[:index]))))
        if len(made[index]) >= usually or habit < HABIT:
            continue
        if index + 1 < len(steps) or _passed(steps[index][1], steps[index - 1][1], usual[-1]):
            step = _entry(case, rank, steps[index][0])
            return LeftOut(rank, entry, usual[-1], step, len(made[index]), usually, habit)
    return None


def _by_step(case: Case, rank: int) -> list[tuple[int, list[Collective]]]:
    """All calls of a rank in the order in which it issued them, by step; the oldest step may have lost its first."""
    reading = case.ranks[rank].reading
    known = {entry.step for entry in reading.steps} if reading is not None else set()
    found: dict[int, list[Collective]] = {}
    for call in sorted([*case.ledger.calls(rank).values(), *_to_peers(case, rank)], key=lambda call: call.at or 0.0):
        step = case.ledger.step_of(rank, call)
        if step is not None and step in known:
            found.setdefault(step, []).append(call)
    return sorted(found.items())[1:]


def _to_peers(case: Case, rank: int) -> Iterable[Collective]:
    reading = case.ranks[rank].reading
    return (call for call in (reading.calls if reading is not None else ()) if is_point_to_point(call))


def _passed(calls: list[Collective], before: list[Collective], usual: Collective) -> bool:
    """`calls` hold one that came behind `usual` in the step before, oftener than it came ahead of it."""
    place = before.index(usual)
    ahead, behind = Counter(map(_token, before[:place])), set(map(_token, before[place + 1 :]))
    return any(times > ahead[token] and token in behind for token, times in Counter(map(_token, calls)).items())


def _token(call: Collective) -> Hashable:
    return call.op, call.group, call.peer, site(call)


def _entry(case: Case, rank: int, step: int) -> StepEntry:
    reading = case.ranks[rank].reading
    return next(entry for entry in (reading.steps if reading is not None else ()) if entry.step == step)
