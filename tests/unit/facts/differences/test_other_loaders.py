"""A loader besides the training one that was longer on a rank: all have exhausted it, and the calls are mispaired."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Frame, Judgement, LoaderFacts, RankEvidence
from tests.unit.simulator import SCRIPT, Action, Call, Draw, World, blamed_ranks

LOOP = Frame(SCRIPT, 40, "evaluate")


def judged(batches: dict[int, int], drawn: dict[int, int], *, exhausted: bool = True) -> Judgement:
    """Ranks that evaluate after their fourth batch, by so many calls, and by their boards on so many batches."""

    def program(rank: int) -> list[Action]:
        steps: list[list[Action]] = [[Draw(0, batch), Call(via="gradients", line=12)] for batch in range(9)]
        steps[3] += [Call("all_gather", line=41)] * batches[rank]
        return [action for step in steps for action in step]

    snapshot = World([program(rank) for rank in batches]).run().snapshot()
    ranks = (_with(entry, drawn[entry.rank], exhausted) for entry in snapshot.ranks)
    return diagnose(replace(snapshot, ranks=tuple(ranks)))


def _with(entry: RankEvidence, drawn: int, exhausted: bool) -> RankEvidence:
    assert entry.reading is not None
    held = LoaderFacts(1, 9, 0, drawn, exhausted=exhausted, training=False, where=LOOP)
    return replace(entry, reading=replace(entry.reading, loaders=(*entry.reading.loaders, held)))


@pytest.mark.parametrize("short", [(1,), (0, 2)])
def test_fewer_batches_explain_fewer_calls(short: tuple[int, ...]) -> None:
    counts = {rank: 2 if rank in short else 3 for rank in range(3)}
    judgement = judged(counts, counts)
    assert judgement.verdict.cause == "uneven-steps", judgement.verdict.summary
    assert blamed_ranks(judgement) == list(short)
    assert "in the loop at train.py:40" in judgement.verdict.summary
    assert "drew 2 batches there, and the others 3." in judgement.verdict.summary
    assert {who.where for who in judgement.verdict.culprits} == {LOOP}
    assert not any("same number of training batches" in each.why_not for each in judgement.verdict.alternatives)


@pytest.mark.parametrize(
    ("batches", "exhausted"),
    [({0: 2, 1: 2, 2: 2}, True), ({0: 2, 1: 3, 2: 3}, True), ({0: 3, 1: 2, 2: 3}, False)],
    ids=["equal", "of another rank", "left early"],
)
def test_counts_that_do_not_go_together_explain_nothing(batches: dict[int, int], exhausted: bool) -> None:
    assert judged({0: 3, 1: 2, 2: 3}, batches, exhausted=exhausted).verdict.cause != "uneven-steps"
