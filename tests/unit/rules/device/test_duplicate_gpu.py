"""`duplicate-gpu`: two ranks share one GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import ExceptionFacts
from tests.unit.job import blamed, judge, told
from tests.unit.rules.device.gpus import SPINNING, gpu, in_first_collective, node, on


def test_two_ranks_on_one_gpu() -> None:
    ranks = [in_first_collective(number, 0) for number in (0, 1)]
    judgement = judge(*ranks, node=node(gpu(0, **SPINNING)))
    assert told(judgement)[:2] == ("duplicate-gpu", "likely")
    assert {rank for rank, _, _ in blamed(judgement)} == {0, 1}
    assert "bound to GPU 0 of node-a" in judgement.verdict.summary


@pytest.mark.parametrize("settings", [{"NCCL_HOSTID": "h0"}, {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}])
def test_ranks_that_share_a_gpu_on_purpose(settings: dict[str, str]) -> None:
    ranks = []
    for number in (0, 1):
        made = in_first_collective(number, 0)
        assert made.reading is not None
        identity = replace(made.reading.identity, environment=settings)
        ranks.append(replace(made, reading=replace(made.reading, identity=identity)))
    assert judge(*ranks, node=node(gpu(0, **SPINNING))).verdict.cause != "duplicate-gpu"


def test_nccl_says_so_itself() -> None:
    error = ExceptionFacts(
        "DistBackendError", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000", ()
    )
    judgement = judge(on(0, 0, exception=error), on(1, 0, exception=error), node=node(gpu(0)))
    assert judgement.verdict.cause in ("duplicate-gpu", "exception-on-one-rank")
