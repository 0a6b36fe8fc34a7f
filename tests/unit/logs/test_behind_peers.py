"""Ranks that are awaited, and of which torch's watchdog says that they wait in a send or receive."""

from __future__ import annotations

from pathlib import Path

from hangwatch.model import Verdict
from tests.unit.logs.lines import asked_to_dump, far, gave_up, judged


def told(tmp_path: Path, *lines: str) -> Verdict:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    return found.verdict


def waiting(*ranks: int) -> list[str]:
    return [line for rank in ranks for line in (gave_up(rank, 90), far(rank, 90, 90, 89))]


def test_a_rank_that_waits_for_a_peer_is_not_the_one_to_blame(tmp_path: Path) -> None:
    found = told(tmp_path, *waiting(0, 2), gave_up(1, 12, "COALESCED"), far(1, 12, 12, 11))
    assert not found.culprits
    assert found.victims == (0, 1, 2)
    assert found.details == ("But rank 1 waits in a send, receive or batch of calls that torch gave up as well.",)
    assert "name the peer" in found.fix


def test_one_that_waits_for_none_is_named_all_the_same(tmp_path: Path) -> None:
    messages = [gave_up(1, 12, "RECV"), far(1, 12, 12, 11)]
    found = told(tmp_path, *waiting(0, 2), *messages, asked_to_dump(3, 89, 89))
    assert [each.rank for each in found.culprits] == [3]
