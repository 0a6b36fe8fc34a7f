"""`rendezvous-unreachable-master`: the master cannot be reached."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import Phase, ProcessFacts, Progress, RankEvidence
from tests.unit.job import IN_CODE, IN_MESH, IN_SPAWN_JOIN, NOW, blamed, judge, launcher, other, rank, starting, told
from tests.unit.rules.start.starts import NEVER_CAME


def lost(number: int, **parts: object) -> RankEvidence:
    return starting(number, facts={"sockets": ()}, **parts)  # type: ignore[arg-type]


def test_another_port() -> None:
    astray = lost(1, environment={"MASTER_PORT": "29501"}, world_size=3)
    judgement = judge(starting(0, world_size=3), astray, starting(2, world_size=3))
    assert told(judgement) == ("rendezvous-unreachable-master", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.fix == "give every rank the same MASTER_PORT: 29500"


def test_of_two_ports_that_of_rank_0_is_right_but_nothing_proves_it() -> None:
    judgement = judge(starting(0), lost(1, environment={"MASTER_PORT": "29501"}))
    assert told(judgement) == ("rendezvous-unreachable-master", "likely", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.fix == "give every rank the same MASTER_PORT: 29500"


def test_the_majority_is_right_even_against_rank_0() -> None:
    astray = starting(0, environment={"MASTER_ADDR": "10.0.0.9"}, world_size=3)
    judgement = judge(astray, lost(1, world_size=3), lost(2, world_size=3))
    assert blamed(judgement) == [(0, 100, "rank")]
    assert judgement.verdict.fix == "give every rank the same MASTER_ADDR: 127.0.0.1"


def test_another_name_for_the_same_place_is_no_fault() -> None:
    judgement = judge(starting(0), starting(1, IN_MESH, environment={"MASTER_ADDR": "localhost"}), world_size=3)
    assert judgement.verdict.cause == "rendezvous-missing-ranks"


def test_no_process_listens_because_rank_0_never_came() -> None:
    judgement = judge(lost(1), world_size=2)
    assert told(judgement) == ("rendezvous-unreachable-master", "likely", "hung")
    assert blamed(judgement) == [(0, None, "rank")]


def test_no_process_listens_yet_because_rank_0_is_late() -> None:
    late = rank(0, IN_CODE, phase=Phase.START, progress=Progress())
    assert told(judge(late, lost(1))) == ("user-code-blocked", "likely", "waiting")


SPAWNED = "python -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=4, pipe_handle={})"


@pytest.mark.parametrize(
    ("parent", "command", "proven"), [(50, SPAWNED, False), (51, SPAWNED, True), (50, "python tracker.py", True)]
)
def test_a_process_that_was_started_as_the_ranks_were_may_be_rank_0(parent: int, command: str, proven: bool) -> None:
    """GIVEN mp.spawn WHEN rank 0 waits for its data before init_process_group THEN its number is unknown."""
    waits = starting(1, launcher="spawn", facts={"sockets": (), "parent": 50, "command": SPAWNED.format(8)})
    sleeps = other(222, "job", parent=parent, command=command.format(6))
    judgement = judge(waits, world_size=2, launchers=(launcher(IN_SPAWN_JOIN, system_call="poll"),), others=(sleeps,))
    if proven:
        assert told(judgement) == ("rendezvous-unreachable-master", "proven", "hung")
    else:
        assert told(judgement) == ("rendezvous-missing-ranks", "likely", "waiting")
        assert judgement.verdict.summary.startswith("Rank 0 has not come yet: 1 of 2 ranks has said its number")
        assert "pid 222 is no rank yet and may become one" in judgement.verdict.evidence


def test_a_name_that_does_not_resolve() -> None:
    ranks = [lost(number, environment={"MASTER_ADDR": "node-0"}) for number in (0, 1)]
    judgement = judge(*ranks, node={"master_resolves": False})
    assert told(judgement) == ("rendezvous-unreachable-master", "likely", "hung")
    assert blamed(judgement) == []
    assert "the name does not resolve" in judgement.verdict.summary


def test_unreadable_sockets_say_nothing() -> None:
    blind = starting(0, facts={"sockets": (), "unreadable": ("sockets: permission denied",)})
    assert told(judge(blind, world_size=2)) == NEVER_CAME


@pytest.mark.parametrize(("came_s", "waited_s", "status"), [(11, 66, "waiting"), (64, 66, "hung"), (120, 180, "hung")])
def test_a_rank_that_waited_before_the_master_came_tries_again_after_a_pause(
    came_s: float, waited_s: float, status: str
) -> None:
    """GIVEN a rank that is not connected WHEN rank 0 came late THEN its next try may connect it."""
    master = starting(0, still_s=came_s, started_at=NOW - 200, world_size=3)
    connected = starting(1, still_s=waited_s, started_at=NOW - 200, world_size=3)
    judgement = judge(master, connected, lost(2, still_s=waited_s, started_at=NOW - 200, world_size=3))
    assert told(judgement) == ("rendezvous-unreachable-master", "likely", status)


def test_each_rank_may_look_at_a_port_of_its_own() -> None:
    ports = {1: "29501", 2: "29502"}
    astray = [lost(n, environment={"MASTER_PORT": port}, world_size=3) for n, port in ports.items()]
    judgement = judge(starting(0, world_size=3), *astray)
    assert [rank for rank, _, _ in blamed(judgement)] == [1, 2]
    assert "127.0.0.1:29501 and 127.0.0.1:29502, and rank 0 at 127.0.0.1:29500" in judgement.verdict.summary


def test_a_port_that_the_program_computes_on_each_rank_is_to_be_made_once() -> None:
    """GIVEN processes that were started without a port WHEN each has one of its own THEN no port is the one to give."""
    ports = {0: "29500", 1: "29501", 2: "29502"}
    ranks = [lost(n, environment={"MASTER_PORT": port}, world_size=3) for n, port in ports.items()]
    judgement = judge(*(replace(each, process=_started_without_a_port(each)) for each in ranks))
    assert [rank for rank, _, _ in blamed(judgement)] == [1, 2]
    assert "set MASTER_PORT once, before the ranks are started" in judgement.verdict.fix
    assert "rank 1 (pid 101) looks for the master at 127.0.0.1:29501 and is not connected to it" in (
        judgement.verdict.evidence
    )
    assert (
        "the processes of all ranks were started without MASTER_PORT: the program chooses that address itself"
        in judgement.verdict.evidence
    )


def test_an_address_by_init_method_is_not_said_to_be_in_the_environment() -> None:
    """GIVEN processes with one MASTER_PORT of their launcher WHEN each looks elsewhere THEN env:// is advised."""
    ports = {0: "29501", 1: "29502", 2: "29503"}
    ranks = [lost(n, environment={"MASTER_PORT": port}, world_size=3) for n, port in ports.items()]
    given = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    verdict = judge(*(replace(each, process=replace(_process(each), environment=given)) for each in ranks)).verdict
    assert verdict.summary.startswith("Ranks 1-2 look for the master at 127.0.0.1:29502 and 127.0.0.1:29503")
    assert "use the MASTER_ADDR and MASTER_PORT with which the processes are started (localhost:29500)" in verdict.fix
    assert "init_method='env://'" in verdict.fix
    assert not any("has MASTER_ADDR" in sentence for sentence in verdict.evidence)


def _started_without_a_port(entry: RankEvidence) -> ProcessFacts:
    return replace(_process(entry), environment={"OMP_NUM_THREADS": "1"})


def _process(entry: RankEvidence) -> ProcessFacts:
    assert entry.process is not None
    return entry.process
