"""`collective-mismatch`: a broadcast that ended a rank, to which it brought a tensor of another size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import ExceptionFacts, Frame, Judgement, RankEvidence
from tests.unit.job import NOW, TORCH, blamed, judge, told
from tests.unit.rules.step.aborts import CLOSED, USUAL, calls, dead

DDP = (
    Frame(f"{TORCH}/distributed/utils.py", 326, "_sync_params_and_buffers"),
    Frame(f"{TORCH}/distributed/utils.py", 315, "_sync_module_states"),
    Frame(f"{TORCH}/nn/parallel/distributed.py", 1066, "__init__"),
    *USUAL,
)


def size_line(came: int, expected: int) -> str:
    return f"op.preamble.length <= op.nbytes. {came} vs {expected}. Received data size doesn't match expected size."


def broadcasting(number: int, count: int, frames: tuple[Frame, ...], *, aborted: str = "") -> RankEvidence:
    """Its last call is a broadcast of so many float32 from there; in it gloo aborted it, or it lost a connection."""
    *before, last = calls(2, USUAL)
    last = replace(last, op="broadcast", sizes=((count,),), frames=frames)
    if aborted:
        return dead(number, (*before, last), code=-6, last_output=aborted)
    found = dead(number, (*before, last), code=1)
    assert found.reading is not None
    error = ExceptionFacts("RuntimeError", CLOSED, frames, at=NOW - 12)
    return replace(found, reading=replace(found.reading, exception=error))


def judged(came: int, frames: tuple[Frame, ...] = DDP, theirs: tuple[Frame, ...] = DDP) -> Judgement:
    aborted = broadcasting(1, 157, frames, aborted=size_line(came, 628))
    return judge(broadcasting(0, 160, theirs), aborted, world_size=2)


def test_a_module_whose_buffers_are_of_another_size_is_told_with_its_rank() -> None:
    judgement = judged(640)
    assert told(judgement) == ("collective-mismatch", "likely", "failed")
    assert [rank for rank, _, _ in blamed(judgement)] == [1]
    assert "brought 628 bytes to the broadcast of a module's parameters and buffers" in judgement.verdict.summary
    assert "rank 0 brought 640" in judgement.verdict.summary
    assert "buffer or parameter" in judgement.verdict.fix


@pytest.mark.parametrize(
    ("came", "theirs"), [(644, DDP), (640, USUAL)], ids=["not what the other brought", "another call brought as much"]
)
def test_a_message_that_may_be_of_another_call_blames_nobody(came: int, theirs: tuple[Frame, ...]) -> None:
    judgement = judged(came, theirs=theirs)
    assert judgement.verdict.cause != "collective-mismatch"
    assert blamed(judgement) == []
