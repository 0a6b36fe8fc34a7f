"""`interconnect-stall`: the GPUs do not reach each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import GroupHead
from tests.unit.job import blamed, judge, told
from tests.unit.rules.device.gpus import IDLE, SPINNING, gpu, in_first_collective, node


def test_gpus_that_do_not_reach_each_other() -> None:
    ranks = [in_first_collective(number) for number in (0, 1)]
    judgement = judge(*ranks, node=node(gpu(0, **SPINNING), gpu(1, **SPINNING)))
    assert told(judgement)[:2] == ("interconnect-stall", "likely")
    assert blamed(judgement) == []


WORKS = {"utilization_percent": 100, "power_w": 640.0, "power_limit_w": 700.0}


@pytest.mark.parametrize("figures", [(SPINNING, WORKS), (IDLE, IDLE)], ids=["one computes", "none is used"])
def test_a_first_collective_for_which_the_gpus_do_not_all_wait(figures: tuple[dict[str, Any], ...]) -> None:
    """A long kernel before it, or hosts that have not come to their devices yet."""
    ranks = [in_first_collective(number) for number in (0, 1)]
    gpus = (gpu(number, **each) for number, each in enumerate(figures))
    assert judge(*ranks, node=node(*gpus)).verdict.cause != "interconnect-stall"


def test_a_later_collective_is_no_sign_that_gpus_never_reached_each_other() -> None:
    heads = (GroupHead("0", (0, 1), "", "nccl", 9, 8),)
    made = (replace(each, collectives=type(each.collectives)(heads)) for each in map(in_first_collective, (0, 1)))
    judgement = judge(*made, node=node(gpu(0, **SPINNING), gpu(1, **SPINNING)))
    assert judgement.verdict.cause != "interconnect-stall"
