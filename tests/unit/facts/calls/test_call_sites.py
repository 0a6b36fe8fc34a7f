"""Where a call came from, and where its rank stands now."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.callers import caller_of
from hangwatch.facts.case import Case
from hangwatch.model import RankEvidence
from tests.unit.rules.step.worlds import STEP, changed, world
from tests.unit.simulator import SCRIPT, Call

ISSUED, AWAITED = 60, 62


def _awaits(entry: RankEvidence) -> RankEvidence:
    """The rank issued its call at one line, and waits for the result of it two lines on."""
    (main, *others) = entry.stacks
    frames = tuple(replace(frame, line=AWAITED) if frame.line == ISSUED else frame for frame in main.frames)
    return replace(entry, stacks=(replace(main, frames=frames), *others))


def test_the_line_that_waits_for_a_call_is_not_the_one_that_made_it() -> None:
    turn = [*STEP, Call("reduce", line=ISSUED)]
    case = Case(changed(world(turn * 3, [*turn * 2, *STEP, *STEP]), 0, _awaits))
    call = case.blocked[0].call
    assert call is not None
    assert case.ranks[0].where is not None
    assert case.ranks[0].where.line == AWAITED
    made = caller_of(case, 0, call)
    assert made is not None
    assert (made[0], made[2]) == (SCRIPT, ISSUED)
    assert sites_of(case).any_called_from(made, {0: call})
