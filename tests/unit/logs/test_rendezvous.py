"""Ranks that gave up the store's barrier at the start, and ranks of which there is no error."""

from __future__ import annotations

from pathlib import Path

from hangwatch.logs import Logs, nothing_of_use, read
from hangwatch.model import Verdict
from tests.unit.logs.lines import judged
from tests.unit.logs.test_own_words import trace

BARRIER = (
    "Timed out initializing process group in store based barrier on rank {rank}, for key: store_based_barrier_key:1"
    " (world_size=4, num_workers_joined={came}, timeout=0:30:00)"
)
GLOO = "RuntimeError: [unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation to complete"


def told(tmp_path: Path, *lines: str) -> Verdict:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    return found.verdict


def test_the_rank_that_did_not_come_to_the_barrier_of_the_store(tmp_path: Path) -> None:
    for head in ("[rank{rank}]: RuntimeError: ", "[rank{rank}]: torch.distributed.DistStoreError: "):
        lines = [(head + BARRIER).format(rank=rank, came=3) for rank in (0, 1, 3)]
        found = told(tmp_path, *lines)
        assert (found.cause, [each.rank for each in found.culprits]) == ("rendezvous-missing-ranks", [2])
        assert found.summary == "Of 4 ranks, 3 came to the rendezvous in time: rank 2 did not."
        assert not told(tmp_path, *lines[:2]).culprits  # the log of one that came is not here


def test_of_ranks_that_gave_up_a_wait_the_one_without_an_error_is_named(tmp_path: Path) -> None:
    speaks = "rank3: compiling kernels"
    found = told(tmp_path, speaks, *(trace(rank, GLOO) for rank in range(3)))
    assert ([each.rank for each in found.culprits], found.victims) == ([3], (0, 1, 2))
    assert found.evidence == ("the last output of rank 3: compiling kernels",)
    # BUT where a rank of which nothing is told may be the one, or a connection broke, none is
    assert not told(tmp_path, speaks, *(trace(rank, GLOO) for rank in range(2))).culprits
    assert not told(
        tmp_path, speaks, *(trace(rank, "RuntimeError: Connection reset by peer") for rank in range(3))
    ).culprits


LOST = (
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed."
    " See inner exception for details."
)
REFUSED = (
    "[W1124 13:00:02.118 socket.cpp:697] [c10d] The client socket has failed to connect to [head-0]:29400 (errno: 111 -"
    " Connection refused)."
)
HEARTBEAT = (
    "W1124 13:05:00.110000 88 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1340] The node 'gpu-03_211_0'"
    " has failed to send a keep-alive heartbeat to the rendezvous 'job7' due to an error of type"
    " RendezvousConnectionError."
)
STORE = (
    "[rank3]:[W1124 13:05:05.218 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=67, addr=[gpu-02]:41300,"
    " remote=[gpu-01]:29500): failed to recv, got 0 bytes"
)


def test_a_launcher_that_does_not_reach_the_store_names_its_address(tmp_path: Path) -> None:
    found = told(tmp_path, REFUSED, LOST)
    assert (found.cause, found.certainty) == ("rendezvous-unreachable-master", "likely")
    assert "head-0:29400 (Connection refused)" in found.summary
    assert "--rdzv-endpoint" in found.fix


def test_a_store_that_goes_away_while_the_job_runs_is_no_fault_of_the_node_that_says_so(tmp_path: Path) -> None:
    found = told(tmp_path, HEARTBEAT, LOST)
    assert (found.cause, found.culprits) == ("undetermined", ())
    assert "gpu-03_211_0 lost the store" in found.summary


def test_a_connection_that_is_tried_again_or_lost_at_the_end_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    for lines in ((REFUSED, "step 1"), ("step 9", HEARTBEAT), ("step 9", STORE)):
        path.write_text("\n".join(lines))
        logs = Logs()
        assert not read(path, logs)
        sentences = nothing_of_use([path], logs)
        assert any("rank 3 lost the store at gpu-01:29500" in said for said in sentences) is (STORE in lines)
