"""GIVEN a call whose sizes nobody recorded WHEN gloo aborts a rank for them THEN it is told where all stand in it."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.model import Certainty, ExceptionFacts, Frame, Judgement, Phase, Progress, RankEvidence
from tests.unit.job import NOW, SCRIPT, TORCH, gone, judge, main_thread
from tests.unit.rules.step.aborts import CLOSED
from tests.unit.rules.step.decisions import blamed

WAIT = Frame(f"{TORCH}/distributed/_functional_collectives.py", 142, "wait_tensor")
LAYER, OTHER = Frame(SCRIPT, 12, "forward"), Frame(SCRIPT, 14, "forward")
ENGINE = Frame(f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward")
SIZES = "[enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 2816 vs 2432. "


def failed(rank: int, message: str, frames: tuple[Frame, ...], step: int) -> RankEvidence:
    found = gone(rank, 1, Phase.STEP, progress=Progress(step=step, epoch=0, batch=step), issued=104, completed=104)
    assert found.reading is not None
    error = ExceptionFacts("RuntimeError", message, frames, at=NOW - 11)
    stack = replace(main_thread(frames), source="error")
    return replace(found, reading=replace(found.reading, exception=error), stacks=(stack,))


def of(first: tuple[Frame, ...], second: tuple[Frame, ...], steps: tuple[int, int] = (25, 25)) -> Judgement:
    return judge(failed(0, SIZES, first, steps[0]), failed(1, CLOSED, second, steps[1]), world_size=2)


def test_one_call_of_different_sizes() -> None:
    judgement = of((WAIT, LAYER), (WAIT, LAYER))
    verdict = judgement.verdict
    assert (verdict.cause, verdict.certainty, blamed(judgement)) == ("collective-mismatch", Certainty.LIKELY, [])
    assert "a message of 2,816 bytes came where 2,432 were expected" in verdict.summary


def test_calls_that_may_be_mispaired_are_not_one_call() -> None:
    assert of((WAIT, LAYER), (WAIT, OTHER)).verdict.cause == "undetermined"
    assert of((WAIT, LAYER), (WAIT, LAYER), steps=(25, 26)).verdict.cause != "collective-mismatch"
    assert of((WAIT, ENGINE, LAYER), (WAIT, ENGINE, LAYER)).verdict.cause == "undetermined"
