"""A rank that is past the loop with as many batches as the others: it left the loop over epochs, or lacks calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import (
    Collective,
    ExceptionFacts,
    Frame,
    Judgement,
    LoaderFacts,
    LoopFacts,
    Progress,
    RankEvidence,
    StepEntry,
)
from tests.unit.job import C10D, NOW, SCRIPT, blamed, judge, rank, told

EPOCHS, DATA, STOP, VOTE, END = 49, 31, 55, 56, 59


def standing(number: int, op: str, line: int, loop: LoopFacts | None, short_in: int | None = None) -> RankEvidence:
    """It has drawn the 10 batches of epoch 2, with a collective in each step and a vote after each epoch."""
    where = Frame(SCRIPT, line, "main")
    frames, vote = (Frame(C10D, 3145, op), where), (Frame(C10D, 3145, "broadcast"), Frame(SCRIPT, VOTE, "main"))
    made = [("broadcast", 11, 9, vote), ("broadcast", 22, 19, vote), (op, 33, 29, frames)]
    calls = tuple(
        Collective("0", seq, name, frames=path, at=NOW - 70 + step, step=step, thread_name="MainThread")
        for name, seq, step, path in made
    )
    issued = [step + step // 10 - (short_in is not None and step > short_in) for step in range(30)]
    steps = tuple(StepEntry(step, step // 10, step % 10, 0, NOW - 90 + step, {"0": issued[step]}) for step in range(30))
    loader = LoaderFacts(
        0, 10, epoch=2, drawn=10, left=True, exhausted=True, training=True, where=Frame(SCRIPT, DATA, "train_epoch"),
        drawn_per_epoch=(10, 10, 10), exhausted_per_epoch=(True, True, True),
    )  # fmt: skip
    entry = rank(
        number, frames, world_size=3, issued=33, completed=32, progress=Progress(step=29, epoch=2, batch=9),
        steps=steps, calls=calls, open_calls=calls[-1:], loaders=(loader,),
    )  # fmt: skip
    stacks = tuple(replace(stack, in_loop=loop is not None, loop=loop, guard="none") for stack in entry.stacks)
    return replace(entry, stacks=stacks, earlier_stacks=stacks)


def job(over: int, leaves: tuple[int, ...], short_in: int | None = None, *caught: ExceptionFacts) -> Judgement:
    """Rank 0 is at the end; the others are in a loop at line `over` that can be left at `leaves`."""
    loop = LoopFacts(
        Frame(SCRIPT, over, "main"), True, leaves=tuple(Frame(SCRIPT, line, "main") for line in leaves), last=58
    )
    inside = [standing(number, "broadcast", VOTE, loop) for number in (1, 2)]
    left = standing(0, "barrier", END, None, short_in)
    assert left.reading is not None
    return judge(replace(left, reading=replace(left.reading, caught=caught)), *inside)


@pytest.mark.parametrize(
    ("over", "leaves", "short_in", "cause"),
    [
        pytest.param(EPOCHS, (STOP,), None, "early-exit", id="the loop over epochs can be left"),
        pytest.param(EPOCHS, (), None, "skipped-collective", id="it can not"),
        pytest.param(DATA, (STOP,), None, "skipped-collective", id="the loop over the data"),
        pytest.param(EPOCHS, (STOP,), 12, "skipped-collective", id="a call was left out before"),
    ],
)
def test_what_a_rank_lacks_that_has_as_many_batches(
    over: int, leaves: tuple[int, ...], short_in: int | None, cause: str
) -> None:
    judgement = job(over, leaves, short_in)
    assert told(judgement)[0] == cause, judgement.verdict.summary
    assert [number for number, _, _ in blamed(judgement)] == [0]


@pytest.mark.parametrize(("step", "cause"), [(29, "exception-on-one-rank"), (28, "early-exit")])
def test_an_error_that_it_caught_in_its_last_step_took_it_out_of_the_loop(step: int, cause: str) -> None:
    error = ExceptionFacts("KeyError", "'t99'", (Frame(SCRIPT, 13, "encode"),), "MainThread", step=step)
    judgement = job(EPOCHS, (STOP,), None, error)
    assert told(judgement)[0] == cause
    if cause == "exception-on-one-rank":
        (culprit,) = judgement.verdict.culprits
        assert (culprit.rank, culprit.where) == (0, error.frames[0])
        raised = "rank 0 raised KeyError: 't99' (train.py:13) in the last step, and caught it"
        assert raised in judgement.verdict.summary
