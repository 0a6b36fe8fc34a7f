"""Two ranks that both send first: the message behind the own send is on record, and was not left out."""

from __future__ import annotations

from pathlib import Path

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step

LAST = 2  # the round in which rank 1 sends first, too


def _rounds(rank: int) -> list[Step]:
    send, receive = Call("send", 27, 64, peer=rank ^ 1), Call("recv", 29, 64, peer=rank ^ 1)
    steps: list[Step] = []
    for turn in range(LAST + 1):
        first = rank % 2 == 0 or (rank == 1 and turn == LAST)
        steps += [send, receive] if first else [receive, send]
        steps += [Call("all_reduce", 97, 1)]
    return steps


def test_a_message_that_stands_behind_the_ranks_own_is_not_said_to_be_left_out(tmp_path: Path) -> None:
    found = verdict(JobDumps({rank: _rounds(rank) for rank in range(4)}), tmp_path)
    assert (found.cause, blamed(found)) == ("point-to-point-deadlock", [1])
    assert found.summary.startswith("Rank 1 called send of the default group (train.py:27) before its receive from")
    assert "left out" not in found.summary
    assert "batch_isend_irecv" in found.fix
