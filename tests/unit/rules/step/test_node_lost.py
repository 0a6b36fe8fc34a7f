"""Nodes of which nothing is heard, and ranks that failed for want of one that cannot be seen from here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import ExceptionFacts, Frame, Judgement, NodeFacts, Phase, Progress, RankEvidence, StepTimes
from tests.unit.job import (
    IN_BACKWARD,
    IN_CODE,
    NOW,
    SCRIPT,
    TORCH,
    gone,
    judge,
    rank,
    snapshot,
    started,
    told,
)

READ = "Read error [10.0.0.2]:26038: Connection reset by peer"
RESET = f"[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] {READ}"
TORCH_FRAMES = (Frame(f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward"), Frame(SCRIPT, 50, "main"))


def waiting(number: int, moved_s_ago: float = 20.0, **parts: Any) -> RankEvidence:
    progress = Progress(step=5, epoch=0, batch=5, calls=11, completed=10, at=NOW - moved_s_ago)
    return rank(
        number, IN_BACKWARD, phase=Phase.BACKWARD, world_size=4, issued=11, completed=10, progress=progress, **parts
    )


def failed(number: int, *, frames: tuple[Frame, ...] = TORCH_FRAMES, message: str = RESET) -> RankEvidence:
    error = ExceptionFacts("RuntimeError", message, frames, at=NOW - 2)
    return gone(number, 1, Phase.FINALIZING, exception=error, world_size=4)


def unheard(number: int) -> RankEvidence:
    """A rank of node-b, as its last batch had it."""
    known = rank(number, phase=Phase.BACKWARD, world_size=4, issued=10, completed=10)
    assert known.reading is not None
    return replace(known, host="node-b", process=None, reading=replace(known.reading, taken_at=NOW - 21))


def with_node_b(*ranks: RankEvidence, silent_s: float) -> Judgement:
    seen = snapshot(*ranks, unheard(2), unheard(3), world_size=4)
    nodes = (NodeFacts("node-a", (0, 1)), NodeFacts("node-b", (2, 3), silent_s=silent_s))
    return diagnose(replace(seen, nodes=nodes))


@pytest.mark.parametrize(("silent_s", "status"), [(6.0, "waiting"), (20.0, "hung")])
def test_all_ranks_wait_for_those_of_a_silent_node(silent_s: float, status: str) -> None:
    judgement = with_node_b(waiting(0, silent_s), waiting(1, silent_s), silent_s=silent_s)
    assert told(judgement) == ("node-lost", "likely", status)
    assert [(who.rank, who.host) for who in judgement.verdict.culprits] == [(2, "node-b"), (3, "node-b")]
    assert "Nothing has been heard of node-b for" in judgement.verdict.summary
    assert "ranks 2-3 run; ranks 0-1 wait for them (train.py:50)" in judgement.verdict.summary
    assert judgement.verdict.evidence[0].startswith("node-b was last heard of")
    assert judgement.verdict.victims == (0, 1)


def test_a_silent_node_whose_peers_fail_is_to_blame_and_not_they() -> None:
    judgement = with_node_b(failed(0), waiting(1, 6.0), silent_s=6.0)
    assert told(judgement) == ("node-lost", "likely", "failed")
    assert [who.rank for who in judgement.verdict.culprits] == [2, 3]
    assert "rank 1 waits for them (train.py:50) and rank 0 has lost the connection to them" in judgement.verdict.summary
    assert f"rank 0 failed with RuntimeError: {READ}" in judgement.verdict.evidence


def test_a_watchdog_that_went_long_before_explains_nothing() -> None:
    """GIVEN a node that fell silent an hour ago WHEN the others stop now THEN its ranks had gone on meanwhile."""
    judgement = with_node_b(waiting(0), waiting(1), silent_s=3600.0)
    assert judgement.verdict.cause != "node-lost"
    assert judgement.verdict.culprits == ()


def test_a_long_step_may_end_after_the_node_has_gone() -> None:
    slow: dict[str, Any] = {"times": StepTimes(slowest_recent_s=60.0)}
    assert with_node_b(waiting(0, 20.0, **slow), waiting(1, **slow), silent_s=70.0).verdict.cause == "node-lost"


def test_who_is_seen_and_still_works_is_looked_at_first() -> None:
    judgement = with_node_b(waiting(0), rank(1, IN_CODE, world_size=4, issued=10, completed=10), silent_s=20.0)
    assert judgement.verdict.cause != "node-lost"


def test_a_rank_that_was_killed_beside_a_silent_node_has_died() -> None:
    judgement = with_node_b(gone(0, -9, Phase.BACKWARD, world_size=4), failed(1), silent_s=6.0)
    assert judgement.verdict.cause == "rank-died"
    assert [who.rank for who in judgement.verdict.culprits] == [0]


def test_ranks_that_lost_one_that_cannot_be_seen_from_here_are_not_blamed() -> None:
    judgement = judge(failed(0), failed(1), world_size=4)
    assert told(judgement) == ("undetermined", "undetermined", "failed")
    assert judgement.stage == "step"
    assert judgement.verdict.culprits == ()
    assert "Ranks 0-1 lost the connection to another rank at 10.0.0.2, and failed" in judgement.verdict.summary
    assert "Nothing is known of ranks 2-3" in judgement.verdict.summary


def test_a_key_that_was_not_set_in_time_is_no_lost_connection() -> None:
    """GIVEN ranks that waited in vain for a key of torch's store, and one that was started beside them
    THEN no connection was lost, and no report of another node is asked for."""
    frames = (Frame(f"{TORCH}/distributed/rpc/backend_registry.py", 123, "_init_process_group"), Frame(SCRIPT, 20, ""))
    in_vain = [failed(n, frames=frames, message="wait timeout after 5000ms, keys: /rpc/0") for n in (0, 2)]
    verdict = judge(*in_vain, world_size=3, launched=(started(1),)).verdict
    assert verdict.summary == (
        "Ranks 0 and 2 gave up waiting for key 'rpc/0' of a store after 5.0 s, and failed. Nothing is known of rank 1."
    )
    assert verdict.fix == "read the last lines of the output of rank 1, and see how far it came"
    assert "rank 1 was started here (pid 101)" in verdict.evidence
    assert judge(*in_vain, world_size=3).verdict.fix.startswith("read the reports of the other nodes")
    # WHEN one of them says something else THEN no more is said of both than is true of both
    verdict = judge(in_vain[0], failed(2, frames=frames), world_size=3).verdict
    assert verdict.summary.startswith("Ranks 0 and 2 failed in their communication with other ranks. Nothing is known")


def test_an_error_of_gloos_own_is_enough_where_torch_has_no_frame_of_python() -> None:
    here = (Frame(SCRIPT, 70, "step"),)
    judgement = judge(failed(0, frames=here), failed(1, frames=here), world_size=4)
    assert judgement.verdict.culprits == ()
    assert "Nothing is known of ranks 2-3" in judgement.verdict.summary
    # WHEN the connection is the user's own THEN a rank has died of it
    own = "Connection closed by peer: the data server"
    judgement = judge(failed(0, frames=here, message=own), failed(1, frames=here, message=own), world_size=4)
    assert judgement.verdict.cause == "rank-died"


def test_while_one_has_failed_the_other_may_still_wait() -> None:
    judgement = judge(failed(0), waiting(1), world_size=4)
    assert told(judgement) == ("undetermined", "undetermined", "failed")
    assert judgement.verdict.victims == (0, 1)


def test_a_connection_of_the_programs_own_is_its_own_error() -> None:
    """GIVEN a rank that lost its metrics server, and another that lost that rank, THEN the first is named."""
    own = replace(failed(0, frames=(Frame(SCRIPT, 12, "push"),), message="connection refused"))
    judgement = judge(own, failed(1), world_size=4)
    assert judgement.verdict.cause == "rank-died"
    assert [who.rank for who in judgement.verdict.culprits] == [0]


def test_where_all_ranks_are_known_the_first_to_go_is_named() -> None:
    judgement = judge(gone(1, -9, Phase.BACKWARD), failed(0))
    assert judgement.verdict.cause == "rank-died"
    assert [who.rank for who in judgement.verdict.culprits] == [1]
