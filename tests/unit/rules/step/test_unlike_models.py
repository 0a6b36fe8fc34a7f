"""GIVEN errors of DDP's check of parameters WHEN the job is judged THEN the rank with another model is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import Certainty, Collective, ExceptionFacts, Frame, Phase, Progress, RankEvidence
from tests.unit.job import C10D, NOW, TORCH, gone, judge, main_thread
from tests.unit.rules.step.aborts import CLOSED
from tests.unit.rules.step.decisions import blamed
from tests.unit.simulator import SCRIPT

BUILD = (Frame(f"{TORCH}/nn/parallel/distributed.py", 1064, "__init__"), Frame(SCRIPT, 39, "main"))
COUNTS = "DDP expects same model across all ranks, but Rank {} has {} params, while rank {} has inconsistent {} params."
SHAPE = "[{}]: params[2] in this process with sizes [10, 40] appears not to match sizes of the same param in process 0."
CHECK = Frame(f"{TORCH}/distributed/utils.py", 286, "_verify_param_shape_across_processes")
SYNC = Frame(f"{TORCH}/distributed/utils.py", 326, "_sync_params_and_buffers")
LOAD = (Frame(C10D, 3145, "broadcast"), Frame(SCRIPT, 28, "load"))


def failed(rank: int, message: str, frames: tuple[Frame, ...]) -> RankEvidence:
    """It failed there before its first step, after a barrier that all made."""
    barrier = (Frame(C10D, 5349, "barrier"), Frame(SCRIPT, 36, "main"))
    made = (Collective("0", 1, "barrier", frames=barrier, at=NOW - 20, thread_name="MainThread"),)
    found = gone(rank, 1, Phase.FINALIZING, calls=made, issued=1, completed=1, world_size=3)
    assert found.reading is not None
    error = ExceptionFacts("RuntimeError", message, frames, at=NOW - 11)
    stack = replace(main_thread(frames), source="error", in_loop=False)
    return replace(found, reading=replace(found.reading, exception=error, progress=Progress()), stacks=(stack,))


def counted(*told: tuple[int, int, int, int]) -> list[RankEvidence]:
    return [failed(each[0], COUNTS.format(*each), (CHECK, *BUILD)) for each in told]


def test_the_rank_with_another_number_of_parameters() -> None:
    judgement = judge(*counted((0, 4, 2, 6), (1, 4, 2, 6), (2, 6, 0, 4)), world_size=3)
    assert judgement.verdict.cause == "collective-mismatch"
    assert judgement.verdict.certainty is Certainty.LIKELY
    assert blamed(judgement) == [(2, 39)]
    assert "4 parameters on ranks 0-1 and 6 parameters on rank 2" in judgement.verdict.summary


def test_of_two_ranks_neither_is_known_to_be_wrong() -> None:
    judgement = judge(*counted((0, 4, 1, 6), (1, 6, 0, 4)), world_size=2)
    assert (judgement.verdict.cause, blamed(judgement)) == ("collective-mismatch", [])


def test_numbers_that_contradict_each_other_are_of_other_calls() -> None:
    judgement = judge(*counted((0, 4, 1, 422), (1, 6, 0, 4)), world_size=2)
    assert "different models" not in judgement.verdict.summary


@pytest.mark.parametrize(("there", "cause"), [((SYNC, *BUILD), "collective-mismatch"), (LOAD, "undetermined")])
def test_shapes_are_compared_where_another_rank_builds_its_model(there: tuple[Frame, ...], cause: str) -> None:
    ranks = [failed(0, CLOSED, there), failed(1, CLOSED, there), failed(2, SHAPE.format(2), (CHECK, *BUILD))]
    judgement = judge(*ranks, world_size=3)
    assert judgement.verdict.cause == cause
    assert blamed(judgement) == ([(2, 39)] if cause == "collective-mismatch" else [])
