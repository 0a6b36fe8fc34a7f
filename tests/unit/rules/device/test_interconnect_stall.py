"""`interconnect-stall`: the GPUs do not reach each other."""

from __future__ import annotations

from tests.unit.job import blamed, judge, told
from tests.unit.rules.device.gpus import SPINNING, gpu, in_first_collective, node


def test_gpus_that_do_not_reach_each_other() -> None:
    ranks = [in_first_collective(number) for number in (0, 1)]
    judgement = judge(*ranks, node=node(gpu(0, **SPINNING), gpu(1, **SPINNING)))
    assert told(judgement)[:2] == ("interconnect-stall", "likely")
    assert blamed(judgement) == []
