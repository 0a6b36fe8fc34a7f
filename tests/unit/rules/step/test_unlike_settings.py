"""DDP's arguments differ between ranks that stand in its calls of the first steps, or were aborted in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import Certainty, Phase, Progress, RankEvidence
from tests.unit.job import IN_BACKWARD, blamed, judge, rank

PLAN = {
    "model": "DistributedDataParallel",
    "wraps": "Net",
    "parameters": "6, 1025a967",
    "find_unused_parameters": "False",
    "comm_hook": "",
}


def planned(
    number: int, plan: dict[str, str] | None = None, *, phase: Phase = Phase.BACKWARD, step: int = 0, **model: str
) -> RankEvidence:
    progress = Progress(epoch=0, batch=step, step=step)
    found = rank(number, IN_BACKWARD, issued=4, completed=3, phase=phase, world_size=3)
    assert found.reading is not None
    reading = replace(found.reading, progress=progress)
    return replace(
        found, reading=replace(reading, identity=replace(reading.identity, plan=PLAN | model | (plan or {})))
    )


@pytest.mark.parametrize(
    ("plan", "differs"),
    [
        (
            {"find_unused_parameters": "True"},
            "find_unused_parameters=False on ranks 0 and 2 and find_unused_parameters=True on rank 1",
        ),
        (
            {"comm_hook": "fp16_compress_hook"},
            "no communication hook on ranks 0 and 2 and the communication hook fp16_compress_hook on rank 1",
        ),
    ],
)
def test_the_rank_with_other_arguments_is_named(plan: dict[str, str], differs: str) -> None:
    verdict = judge(planned(0), planned(1, plan), planned(2), world_size=3).verdict
    assert (verdict.cause, verdict.certainty) == ("collective-mismatch", Certainty.LIKELY)
    assert [culprit.rank for culprit in verdict.culprits] == [1]
    assert f"DistributedDataParallel is set up differently on the ranks: {differs}" in verdict.summary


def test_of_two_ranks_neither_is_blamed() -> None:
    judgement = judge(planned(0), planned(1, {"comm_hook": "fp16_compress_hook"}), world_size=2)
    assert (judgement.verdict.cause, blamed(judgement)) == ("collective-mismatch", [])


@pytest.mark.parametrize(
    "other",
    [
        {"step": 500},
        {"phase": Phase.DATA},
        {"wraps": "Critic"},
        {"parameters": "2, 00c0ffee"},
    ],
    ids=["after many steps", "in no call of DDP's", "another model", "another stage of a model"],
)
def test_arguments_that_differ_explain_no_other_trouble(other: dict[str, Any]) -> None:
    ranks = [planned(0, **other), planned(1, {"find_unused_parameters": "True"}, **other)]
    if other.keys() & PLAN.keys():
        ranks[0] = planned(0)
    assert "set up differently" not in judge(*ranks, world_size=2).verdict.summary
