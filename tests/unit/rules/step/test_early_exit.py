"""`early-exit`: one rank left the training loop early."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.model import LoaderFacts, Phase
from tests.unit.job import gone, judge
from tests.unit.rules.step.endings import DDP, failed
from tests.unit.rules.step.loops import END, epoch, everywhere, judged
from tests.unit.simulator import Leave, LoopEnd, blamed_ranks


def test_a_loop_that_an_error_has_left_is_not_left() -> None:
    def fed(*, left: bool, exhausted: bool = False) -> LoaderFacts:
        return LoaderFacts(0, 60, epoch=0, drawn=30, left=left, exhausted=exhausted)

    error = failed(0, (DDP, 1, "forward"))
    assert error.reading is not None
    down = replace(error, reading=replace(error.reading, loaders=(fed(left=True),)))
    other = gone(1, -15, Phase.STEP, loaders=(replace(fed(left=False), drawn=31),))
    assert judge(down, other).verdict.cause != "early-exit"


@everywhere
def test_a_rank_that_breaks_out_of_the_loop_exited_early(ranks: int, culprit: int) -> None:
    judgement = judged([*epoch(0, 8), *END], [*epoch(0, 4)[:-1], LoopEnd(exhausted=False), *END], ranks, culprit)
    assert judgement.verdict.cause == "early-exit"
    assert blamed_ranks(judgement) == [culprit]


@everywhere
def test_a_rank_that_ends_its_program_while_the_others_train_exited_early(ranks: int, culprit: int) -> None:
    judgement = judged([*epoch(0, 8), *epoch(1, 8), *END], [*epoch(0, 8), Leave(Phase.MAIN_DONE)], ranks, culprit)
    assert judgement.verdict.cause == "early-exit"
    assert blamed_ranks(judgement) == [culprit]
