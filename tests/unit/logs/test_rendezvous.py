"""Ranks that gave up the store's barrier at the start, and ranks of which there is no error."""

from __future__ import annotations

from pathlib import Path

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
