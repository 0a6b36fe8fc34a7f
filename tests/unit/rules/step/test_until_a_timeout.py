"""`user-code-blocked`: a rank stood in its own code until the others gave up waiting for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import Collective, ExceptionFacts, Frame, GroupHead, Judgement, Phase, Progress, RankEvidence
from tests.unit.job import C10D, IN_BARRIER, IN_CODE, NOW, SCRIPT, blamed, gone, judge, rank, told

LATE = "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 25000 ms"
LOST = "Rank 2 successfully reached monitoredBarrier, but received errors: Connection closed by peer [127.0.0.1]:20399"
TIMED_OUT = "[unbound_buffer.cc:79] Timed out waiting 20000ms for recv operation to complete"
BARRIER = (Frame(C10D, 5435, "monitored_barrier"), Frame(SCRIPT, 8, "end_of_epoch"), Frame(SCRIPT, 24, "main"))
REDUCE = (Frame(C10D, 3252, "all_reduce"), Frame(SCRIPT, 9, "main"))


def gave_up(number: int, message: str, frames: tuple[Frame, ...] = BARRIER, issued: int = 7) -> RankEvidence:
    call = Collective("0", issued, frames[0].function, frames=frames, at=NOW - 40, step=5)
    found = gone(number, 1, Phase.STEP, calls=(call,), progress=Progress(step=5), world_size=3)
    assert found.reading is not None
    heads = (GroupHead("0", (0, 1, 2), "", "gloo", issued, issued - 1),)
    error = ExceptionFacts("RuntimeError", message, frames, at=NOW - 11)
    collectives = replace(found.collectives, heads=heads)
    return replace(found, collectives=collectives, reading=replace(found.reading, exception=error, heads=heads))


def late(stack: tuple[Frame, ...] = IN_CODE, step: int = 5, **parts: int) -> RankEvidence:
    return rank(1, stack, progress=Progress(step=step), world_size=3, **{"issued": 6, "completed": 6, **parts})  # type: ignore[arg-type]


def by_barrier(late_one: RankEvidence) -> Judgement:
    return judge(gave_up(0, LATE), late_one, gave_up(2, LOST))


def by_timeout(late_one: RankEvidence) -> Judgement:
    return judge(gave_up(0, TIMED_OUT, REDUCE), late_one, gave_up(2, TIMED_OUT, REDUCE))


def test_the_rank_that_a_monitored_barrier_names_is_where_it_stands() -> None:
    judgement = by_barrier(late())
    assert told(judgement) == ("user-code-blocked", "likely", "failed")
    assert [number for number, _, _ in blamed(judgement)] == [1]
    assert "ranks 0 and 2 wait for it (train.py:8)" in judgement.verdict.summary
    assert "Then rank 0 gave up waiting for rank 1 in monitored_barrier after 25 s." in judgement.verdict.summary


def test_the_timeout_of_a_group_leaves_the_rank_that_issued_less() -> None:
    judgement = by_timeout(late())
    assert told(judgement) == ("user-code-blocked", "likely", "failed")
    assert [number for number, _, _ in blamed(judgement)] == [1]
    assert "Then rank 0 gave up waiting after 20 s, the timeout of its process group." in judgement.verdict.summary
    assert "ranks 0 and 2 wait for it (train.py:9)" in judgement.verdict.summary


@pytest.mark.parametrize(
    "late_one",
    [
        pytest.param(late(IN_BARRIER), id="it is in a call"),
        pytest.param(late(step=6), id="it is ahead"),
    ],
)
def test_a_rank_that_is_not_in_code_of_its_own_is_not_called_blocked(late_one: RankEvidence) -> None:
    for judgement in (by_barrier(late_one), by_timeout(late_one)):
        assert told(judgement)[0] != "user-code-blocked"


def test_ranks_that_have_issued_as_much_are_not_awaited() -> None:
    assert told(by_timeout(late(issued=7, completed=7)))[0] == "undetermined"


@pytest.mark.parametrize(("cpu_delta_s", "does", "fix"), [(0.7, "still", "raise the timeout"), (0.0, "stuck", "give")])
def test_a_rank_that_computed_when_the_timeout_came_was_not_stuck(cpu_delta_s: float, does: str, fix: str) -> None:
    """GIVEN a rank that prepares data until its launcher ends it, because the others gave up waiting for it."""
    ended = gone(1, -15, world_size=3, issued=6, completed=6, facts={"cpu_delta_s": cpu_delta_s})
    alive = late(IN_CODE)
    assert ended.reading is not None
    reading = replace(ended.reading, phase=Phase.STEP)
    stacks = tuple(replace(stack, source="last look") for stack in alive.stacks)
    judgement = by_timeout(replace(ended, reading=reading, stacks=stacks, patience_s=600.0))
    assert told(judgement) == ("user-code-blocked", "likely", "failed")
    assert judgement.verdict.summary.startswith(f"Rank 1 is {does} in")
    assert judgement.verdict.fix.startswith(fix)
