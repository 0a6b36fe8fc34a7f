"""What NCCL's RAS threads say of ranks, as a witness beside what hangwatch sees itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Judgement, NcclCommunicator, NcclLaunched, NcclView, NodeFacts, RankEvidence
from tests.unit.job import IN_CODE, rank, snapshot, told
from tests.unit.rules.step.test_node_lost import unheard, waiting

DIFFER = (NcclLaunched("AllReduce", 11, 2, (0, 1)), NcclLaunched("AllReduce", 10, 2, (2, 3)))


def says(**parts: Any) -> NcclView:
    return NcclView("2.28.9", 1, (NcclCommunicator("0x1", 4, (0, 1, 2, 3), **parts),))


def judged(view: NcclView | None, *ranks: RankEvidence, silent: bool = False) -> Judgement:
    seen = snapshot(*ranks, world_size=4)
    nodes = [NodeFacts("node-a", tuple(each.rank for each in ranks if each.host != "node-b"), nccl=view)]
    if silent:
        nodes.append(NodeFacts("node-b", (2, 3), silent_s=20.0))
    return diagnose(replace(seen, nodes=tuple(nodes)))


def test_a_rank_of_which_nothing_is_seen_and_that_nccl_calls_dead_has_probably_died() -> None:
    view = says(launched=DIFFER, missing=(3,), dead=(3,))
    judgement = judged(view, *(waiting(each) for each in (0, 1, 2)))
    assert told(judgement) == ("rank-died", "likely", "hung")
    assert [who.rank for who in judgement.verdict.culprits] == [3]
    assert "NCCL calls rank 3 dead: it does not answer its RAS threads" in judgement.verdict.summary
    assert any("NCCL calls rank 3 of the communicator" in sentence for sentence in judgement.verdict.evidence)
    assert judgement.verdict.victims == (0, 1, 2)


@pytest.mark.parametrize(
    "view", [None, says(launched=DIFFER), says(launched=DIFFER, missing=(3,))], ids=["silent", "counts", "slow"]
)
def test_no_rank_is_called_dead_without_nccls_word(view: NcclView | None) -> None:
    judgement = judged(view, *(waiting(each) for each in (0, 1, 2)))
    assert judgement.verdict.cause != "rank-died"


def test_a_process_that_is_seen_to_live_is_not_dead_whatever_nccl_says() -> None:
    alive = rank(3, IN_CODE, world_size=4, issued=10, completed=10)
    judgement = judged(says(missing=(3,), dead=(3,)), *(waiting(each) for each in (0, 1, 2)), alive)
    assert judgement.verdict.cause != "rank-died"


def test_ranks_that_work_are_no_reason_to_believe_it() -> None:
    busy = rank(2, IN_CODE, world_size=4, issued=11, completed=11)
    judgement = judged(says(missing=(3,), dead=(3,)), waiting(0), waiting(1), busy)
    assert judgement.verdict.cause != "rank-died"


def test_a_silent_node_whose_ranks_do_not_answer_nccl_is_lost() -> None:
    view = says(missing=(2, 3), dead=(2, 3))
    judgement = judged(view, waiting(0), waiting(1), unheard(2), unheard(3), silent=True)
    assert told(judgement) == ("node-lost", "likely", "hung")
    assert any("NCCL calls ranks 2-3" in sentence for sentence in judgement.verdict.evidence)


def test_a_silent_node_whose_ranks_answer_nccl_has_only_lost_its_watchdog() -> None:
    judgement = judged(says(launched=DIFFER), waiting(0), waiting(1), unheard(2), unheard(3), silent=True)
    assert judgement.verdict.cause != "node-lost"
