"""A rank whose last call stood behind a rank check, where the backend ended the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.model import Frame, RankEvidence
from hangwatch.rules.step.rank_zero_only_collective.behind_a_check import ended_behind_a_rank_check
from hangwatch.stacks.frames import stacks_of_error
from tests.unit.job import SCRIPT, TORCH, blamed, judge, snapshot, told
from tests.unit.rules.step.aborts import MODULE, calls, dead, lost

DDP = f"{TORCH}/nn/parallel/distributed.py"
FORWARD = (
    Frame(DDP, 2363, "_distributed_broadcast_coalesced"),
    Frame(DDP, 2425, "_sync_buffers"),
    Frame(DDP, 1782, "_pre_forward"),
    Frame(SCRIPT, 11, "find_lr"),
    Frame(SCRIPT, 26, "main"),
    MODULE,
)
AGREE = (Frame(SCRIPT, 27, "main"), MODULE)


def standing(entry: RankEvidence, guard: str) -> RankEvidence:
    assert entry.reading is not None
    stacks = entry.stacks or stacks_of_error(entry.reading.exception)
    return replace(entry, stacks=tuple(replace(each, guard=guard, in_loop=False) for each in stacks))


def searching(guard: str = "rank", frames: tuple[Frame, ...] = FORWARD) -> RankEvidence:
    found = lost(0, calls(1, site=AGREE))
    assert found.reading is not None
    assert found.reading.exception is not None
    error = replace(found.reading.exception, frames=frames)
    return standing(replace(found, reading=replace(found.reading, exception=error, calls=())), guard)


def agreeing(guard: str = "none") -> RankEvidence:
    return standing(dead(1, calls(1, site=AGREE)), guard)


def test_the_rank_behind_the_check_was_alone() -> None:
    judgement = judge(searching(), agreeing())
    assert told(judgement) == ("rank-zero-only-collective", "likely", "failed")
    assert [number for number, _, _ in blamed(judgement)] == [0]
    call = "the model's forward, with its broadcast of buffers (train.py:11)"
    assert f"Rank 0 was alone in {call}" in judgement.verdict.summary


@pytest.mark.parametrize(("mine", "theirs"), [("none", "none"), ("rank", "rank"), ("", "none"), ("rank", "")])
def test_without_a_check_or_with_one_on_either_side_no_rank_is_blamed(mine: str, theirs: str) -> None:
    judgement = judge(searching(mine), agreeing(theirs))
    assert told(judgement)[0] == "undetermined"
    assert blamed(judgement) == []


def test_a_guarded_barrier_is_how_ranks_wait_for_rank_0() -> None:
    barrier = (Frame(f"{TORCH}/distributed/distributed_c10d.py", 5356, "barrier"), *FORWARD[3:])
    assert ended_behind_a_rank_check(Case(snapshot(searching(frames=barrier), agreeing()))) is None
    assert ended_behind_a_rank_check(Case(snapshot(searching(), agreeing()))) is not None
