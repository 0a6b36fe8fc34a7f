"""`node-not-started`: nodes have not joined."""

from __future__ import annotations

import pytest

from tests.unit.job import IN_NEXT_RENDEZVOUS, NOW, blamed, judge, launcher, told

TORCHRUN = "torchrun --nnodes=2 --rdzv-endpoint=node-a:29400 train.py"


def test_torchrun_waits_for_another_node() -> None:
    waiting = launcher(IN_NEXT_RENDEZVOUS, command=TORCHRUN, started_at=NOW - 150)
    judgement = judge(launchers=(waiting,))
    assert told(judgement) == ("node-not-started", "likely", "hung")
    assert "1 of 2 nodes has come" in judgement.verdict.summary
    assert "at node-a:29400" in judgement.verdict.evidence[0]
    assert blamed(judgement) == []


def test_the_number_of_nodes_may_come_from_the_environment() -> None:
    given = {"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "node-a:29400"}
    waiting = launcher(IN_NEXT_RENDEZVOUS, command="torchrun train.py", started_at=NOW - 150, environment=given)
    judgement = judge(launchers=(waiting,))
    assert told(judgement) == ("node-not-started", "likely", "hung")
    assert "1 of 2 nodes has come" in judgement.verdict.summary
    assert "at node-a:29400" in judgement.verdict.evidence[0]


def test_it_has_patience_with_nodes() -> None:
    waiting = launcher(IN_NEXT_RENDEZVOUS, command=TORCHRUN, started_at=NOW - 90)
    assert told(judge(launchers=(waiting,))) == ("node-not-started", "likely", "waiting")


@pytest.mark.parametrize(("endpoint", "apart"), [("10.0.0.1:29400", False), ("node-a:29401", True)])
def test_launchers_that_look_for_each_other_at_several_ports_never_meet(endpoint: str, apart: bool) -> None:
    other = TORCHRUN.replace("node-a:29400", endpoint)
    waiting = [launcher(IN_NEXT_RENDEZVOUS, n, command=c, started_at=NOW - 60) for n, c in ((8, TORCHRUN), (9, other))]
    judgement = judge(launchers=tuple(waiting))
    assert told(judgement) == ("node-not-started", "likely", "hung" if apart else "waiting")
    assert ("at different endpoints: node-a:29400 and node-a:29401" in judgement.verdict.summary) is apart
    assert ("the same --master-addr" in judgement.verdict.fix) is apart


@pytest.mark.parametrize("command", ["torchrun --standalone --nproc-per-node=2 train.py", "torchrun --nnodes=1:2 t.py"])
def test_one_node_is_enough_for_itself(command: str) -> None:
    waiting = launcher(IN_NEXT_RENDEZVOUS, command=command, started_at=NOW - 150)
    assert judge(launchers=(waiting,)).verdict.cause == "undetermined"


def test_a_launcher_that_works_is_not_waiting_for_nodes() -> None:
    busy = launcher(IN_NEXT_RENDEZVOUS, command=TORCHRUN, started_at=NOW - 150, state="R")
    assert told(judge(launchers=(busy,)))[2] == "waiting"
