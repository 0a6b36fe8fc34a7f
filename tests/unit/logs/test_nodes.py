"""A node that the scheduler saw fail, and what ranks of other nodes then say of their peers."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.model import Status, Verdict
from tests.unit.logs.lines import failure, far, gave_up, judged, set_up, table
from tests.unit.logs.test_own_words import trace

NODES = ("gpu-1", "gpu-2", "gpu-3")  # of two ranks each
FAILED = "srun: error: Node failure on gpu-2"
CANCELLED = "slurmstepd: error: *** STEP 4.0 ON gpu-1 CANCELLED AT 2026-01-02T03:04:05 DUE TO NODE FAILURE, SEE LOG ***"


def host(rank: int) -> str:
    return NODES[rank // 2]


def start(rank: int) -> str:
    using = f"{host(rank)}:{4000 + rank}:{5000 + rank} [0] NCCL INFO Bootstrap: Using eth0:10.0.0.{rank // 2 + 1}<0>"
    return "\n".join((using, *(set_up(rank, word, 6, host(rank)) for word in ("START", "COMPLETE"))))


STARTED = [start(rank) for rank in range(6)]
COMPLETION = "NET/IB: Got completion from peer 10.0.0.2<4351> with status=IBV_WC_RETRY_EXC_ERR(12) hca mlx5_0"
CLOSED = "socketProgress: Connection closed by remote peer gpu-2<51330>"


def warned(rank: int, text: str) -> str:
    return f"{host(rank)}:{4000 + rank}:{6000 + rank} [0] misc/socket.cc:915 NCCL WARN {text}"


def waiting(*ranks: int) -> list[str]:
    return [line for rank in ranks for line in (gave_up(rank, 90), far(rank, 90, 90, 89))]


def told(tmp_path: Path, *lines: str) -> Verdict:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    return found.verdict


@pytest.mark.parametrize("text", [COMPLETION, CLOSED])
def test_a_node_that_failed_comes_before_what_others_say_of_their_connections(text: str, tmp_path: Path) -> None:
    found = told(tmp_path, *STARTED, warned(0, text), warned(4, text), FAILED, CANCELLED)
    assert found.cause == "node-lost"
    assert found.summary == "Slurm says that node gpu-2 failed, with ranks 2-3."
    assert [(each.rank, each.host) for each in found.culprits] == [(2, "gpu-2"), (3, "gpu-2")]
    assert found.victims == (0, 4)
    assert any(said.startswith("the peer in these warnings is gpu-2 (ranks 2-3)") for said in found.evidence)


def test_the_host_of_a_peer_is_told_where_no_scheduler_speaks(tmp_path: Path) -> None:
    found = told(tmp_path, *STARTED, warned(0, COMPLETION), warned(4, COMPLETION))
    assert found.cause == "interconnect-stall"
    assert not found.culprits
    assert "the peer in these warnings is gpu-2 (ranks 2-3), at 10.0.0.2" in found.evidence


def test_an_address_that_two_hosts_have_is_no_host(tmp_path: Path) -> None:
    other = "gpu-3:4004:5004 [0] NCCL INFO Bootstrap: Using docker0:10.0.0.2<0>"
    found = told(tmp_path, *STARTED, other, warned(0, COMPLETION))
    assert not any("the peer in these warnings" in said for said in found.evidence)


def test_ranks_that_wait_for_those_of_the_node_are_its_victims(tmp_path: Path) -> None:
    found = told(tmp_path, *STARTED, *waiting(0, 1, 4, 5), FAILED)
    assert (found.cause, [each.rank for each in found.culprits]) == ("node-lost", [2, 3])
    assert found.victims == (0, 1, 4, 5)


def test_a_wait_for_a_rank_of_another_node_is_not_explained_by_it(tmp_path: Path) -> None:
    found = told(tmp_path, *STARTED, *waiting(0, 1, 2, 3, 4), FAILED)
    assert [each.rank for each in found.culprits] == [5]
    assert "Slurm says that node gpu-2 failed" in found.evidence


def test_what_a_rank_raised_before_is_its_own(tmp_path: Path) -> None:
    for rank in (0, 2):  # of another node, and of that one
        found = told(tmp_path, *STARTED, trace(rank, "ValueError: bad shape"), FAILED, CANCELLED)
        assert (found.cause, [each.rank for each in found.culprits]) == ("exception-on-one-rank", [rank])


def test_a_process_that_was_killed_with_its_node_did_not_die_by_itself(tmp_path: Path) -> None:
    killed = table(failure(3, -9, "Signal 9 (SIGKILL) received by PID 4003", root=True).replace("node-a", "gpu-2"))
    found = told(tmp_path, *STARTED, killed, FAILED)
    assert (found.cause, [each.rank for each in found.culprits]) == ("node-lost", [2, 3])


def test_a_device_of_another_node_that_failed_is_no_symptom(tmp_path: Path) -> None:
    found = told(tmp_path, *STARTED, warned(0, "Cuda failure 'uncorrectable ECC error encountered'"), FAILED)
    assert found.cause != "node-lost"


def test_a_node_without_a_line_is_named_alone(tmp_path: Path) -> None:
    found = judged(tmp_path, "\n".join((FAILED, CANCELLED))).judgement
    assert found is not None
    assert found.status is Status.FAILED
    assert [(each.rank, each.host) for each in found.verdict.culprits] == [(None, "gpu-2")]
