"""Sends and receives counted between collectives, where two ranks pass messages and no other pair tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync

PAIRS: dict[str, tuple[int, ...]] = {f"cp{pair}": (2 * pair, 2 * pair + 1) for pair in range(2)}


def _rounds(rank: int, culprit: int, turn_without: int) -> list[Step]:
    pair, other = f"cp{rank // 2}", rank ^ 1
    parts = (Call("send", 28, 64, pair, peer=other), Call("recv", 28, 64, pair, peer=other))
    batch = Call("batch", 28, 0, pair, parts=parts)
    steps: list[Step] = []
    for turn in range(7):
        steps += [batch] * (3 if (rank, turn) == (culprit, turn_without) else 4)
        steps += [Call("all_reduce", 51, 500, pair), Call("all_reduce", 75, 1), Sync()]
    return steps


@pytest.mark.parametrize("culprit", [0, 3])
def test_of_two_ranks_the_one_whose_count_is_new_left_a_message_out(culprit: int, tmp_path: Path) -> None:
    programs = {rank: _rounds(rank, culprit, 5) for rank in range(4)}
    found = verdict(JobDumps(programs, PAIRS, timed=False), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("point-to-point-deadlock", "likely", [culprit])
    assert found.summary.startswith(f"Rank {culprit} left out 1 ")
    assert any("counted 4 there each time before" in text for text in found.evidence)


def test_two_rounds_make_no_habit_of_messages(tmp_path: Path) -> None:
    programs = {rank: _rounds(rank, 1, 1) for rank in range(4)}
    assert verdict(JobDumps(programs, PAIRS, timed=False), tmp_path).certainty == "undetermined"


def _halo(rank: int) -> list[Step]:
    """Rounds of messages with the neighbours, and a collective, which rank 2 makes first in the last round."""
    near = [other for other in (rank - 1, rank + 1) if 0 <= other < 4]
    parts = tuple(Call(what, 12, 64, peer=other) for other in near for what in ("send", "recv"))
    messages, every = Call("batch", 12, 0, parts=parts), Call("all_reduce", 20, 1)
    return [step for turn in range(3) for step in ((every, messages) if (rank, turn) == (2, 2) else (messages, every))]


def test_messages_made_behind_the_collective_were_not_left_out(tmp_path: Path) -> None:
    found = verdict(JobDumps({rank: _halo(rank) for rank in range(4)}), tmp_path)
    assert (found.cause, blamed(found)) == ("point-to-point-deadlock", [2])
    assert "only behind collective 3 of the default group" in found.summary
    assert "left out" not in found.summary
    assert [each.cause for each in found.alternatives] == ["rank-local-decision"]
