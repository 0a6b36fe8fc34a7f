"""A wait that is right, and a timeout that comes first: told once a share of it has passed, and the late rank works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hangwatch.health.timeout_ahead import LEAST_S, timeout_ahead
from hangwatch.model import RankEvidence, Snapshot
from tests.unit.simulator import Action, Call, Stall, World

LIMIT = 1800.0


def waiting(waited_s: float, limit_s: float | None = LIMIT, *, kind: str = "loop", ranks: int = 4) -> Snapshot:
    """All but rank 0 have waited in a barrier for so long; rank 0 is in code of its own."""
    first: list[Action] = [Call(line=5), Stall(line=40, kind=kind, function="tokenize")]
    others: list[Action] = [Call(line=5), Call("barrier", line=60)]
    snapshot = World([first, *[others] * (ranks - 1)]).run().snapshot()

    def change(rank: RankEvidence) -> RankEvidence:
        assert rank.reading is not None
        heads = tuple(replace(head, timeout_s=limit_s) for head in rank.reading.heads)
        entered = tuple(replace(call, at=snapshot.taken_at - waited_s) for call in rank.collectives.open_calls)
        reading = replace(rank.reading, heads=heads, open_calls=entered)
        return replace(rank, reading=reading, collectives=replace(rank.collectives, open_calls=entered))

    return changed(snapshot, change)


def changed(snapshot: Snapshot, change: Callable[[RankEvidence], RankEvidence]) -> Snapshot:
    return replace(snapshot, ranks=tuple(change(each) for each in snapshot.ranks))


def test_it_says_which_rank_waits_for_which_where_and_for_how_long_still() -> None:
    found = timeout_ahead(waiting(22 * 60))
    assert found is not None
    assert found.kind == "timeout-ahead"
    assert found.summary == (
        "Ranks 1-3 have waited 22 min for rank 0, which still works in tokenize (train.py:40); in 8 min their process"
        " group's timeout ends them: raise timeout= of init_process_group, or do that work before"
    )
    assert found.evidence == (
        "ranks 1-3 have waited 22 min in barrier 2 of group 0",
        "the timeout of that process group is 30 min",
        "rank 0 works: 1.0 s of processor time between two samples",
    )
    assert found.ranks == (0, 1, 2, 3)
    assert "ddp_timeout" in found.fix


@pytest.mark.parametrize(
    ("waited_s", "limit_s", "told"),
    [
        (LIMIT / 2 - 1, LIMIT, False),
        (LIMIT / 2 + 1, LIMIT, True),
        (LIMIT + 1, LIMIT, False),
        (LEAST_S - 1, 12.0, False),
        (LEAST_S + 1, 12.0, True),
        (3600.0, None, False),
    ],
    ids=["less than half", "half", "over", "few seconds", "a short one", "not known"],
)
def test_a_share_of_the_timeout_must_have_passed(waited_s: float, limit_s: float | None, told: bool) -> None:
    assert (timeout_ahead(waiting(waited_s, limit_s)) is not None) == told


@pytest.mark.parametrize("kind", ["socket", "lock", "sleep"])
def test_a_rank_that_shows_no_work_may_hang_and_is_not_told(kind: str) -> None:
    assert timeout_ahead(waiting(22 * 60, kind=kind)) is None


def test_a_rank_of_which_nothing_is_known_is_not_known_to_work() -> None:
    snapshot = waiting(22 * 60)
    assert timeout_ahead(replace(snapshot, ranks=snapshot.ranks[1:])) is None


def test_a_job_that_goes_on_is_not_told() -> None:
    program: list[Action] = [Call(line=5)] * 4
    assert timeout_ahead(World([program] * 3).run().snapshot()) is None
