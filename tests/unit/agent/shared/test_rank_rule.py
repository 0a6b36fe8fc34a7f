from __future__ import annotations

import pytest

from hangwatch_agent.shared import rank_rule
from hangwatch_agent.shared.rank_rule import MARK, looks_like_rank

TRAIN = ["python", "-u", "train.py"]


@pytest.mark.parametrize(
    ("environment", "command", "expected"),
    [
        ({"RANK": "0"}, TRAIN, True),
        ({}, TRAIN, False),
        ({"RANK": "x"}, TRAIN, False),
        ({"RANK": "0"}, ["python", "/usr/bin/torchrun", "--nproc-per-node", "2", "train.py"], False),
        ({"RANK": "0"}, ["python", "-m", "torch.distributed.run", "train.py"], False),
        ({"RANK": "0"}, ["python", "-m", "torch.distributed.launch", "train.py"], False),
        ({"RANK": "0"}, ["python", "-m", "mytrainer"], True),
        ({"RANK": "0", MARK: "50:0"}, ["python", "-c", "from multiprocessing.spawn import spawn_main"], False),
        ({"RANK": "0", MARK: "100:0"}, TRAIN, True),
        ({"RANK": "1", MARK: "50:0"}, TRAIN, True),
        ({"RANK": "1", MARK: "50:None"}, TRAIN, True),
    ],
    ids=["rank", "no rank", "nonsense", "torchrun", "run", "launch", "module", "worker", "exec", "child rank", "spawn"],
)
def test_who_is_a_rank(environment: dict[str, str], command: list[str], expected: bool) -> None:
    assert looks_like_rank(environment, command, pid=100) is expected


@pytest.mark.parametrize(
    ("environment", "own"),
    [
        ({}, None),
        ({"RANK": "3"}, 3),
        ({"RANK": "three"}, None),
        ({"RANK": "3", MARK: "7:3"}, 3),  # its own mark
        ({"RANK": "3", MARK: "8:3"}, None),  # a rank's, which has started this process
        ({"RANK": "3", MARK: "8:1"}, 3),  # started by rank 1 as a rank of its own
    ],
)
def test_a_rank_is_given_and_not_inherited(environment: dict[str, str], own: int | None) -> None:
    assert rank_rule.own_rank(environment, 7) == own


def test_the_generation_of_a_restarted_job() -> None:
    assert rank_rule.generation({}) == 0
    assert rank_rule.generation({rank_rule.RESTARTS: "2"}) == 2
    assert rank_rule.generation({rank_rule.RESTARTS: "often"}) == 0
