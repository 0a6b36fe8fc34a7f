from __future__ import annotations

import pytest

from hangwatch_agent.standing import MARK, looks_like_rank

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
