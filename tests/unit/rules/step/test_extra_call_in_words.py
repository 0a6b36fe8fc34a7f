"""What is said of a rank that made a call too many is true of the other ranks as well."""

from __future__ import annotations

from hangwatch.judge import diagnose
from tests.unit.simulator import Action, Call, Draw, World

GROUPS = {"data": [(0, 2), (1, 3)], "tensor": [(0, 1), (2, 3)]}


def test_the_call_that_no_other_rank_makes_is_named_and_not_the_next_one_of_another_group() -> None:
    """GIVEN a call in one group that rank 2 makes in another's place WHEN it stands in the call behind that one."""

    def program(rank: int) -> list[Action]:
        made: list[Action] = []
        for step in range(12):
            own = Call("broadcast", line=33, group="tensor", root=2) if (rank, step) == (2, 6) else None
            made += [Draw(), own or Call(line=16, group="data", size=4), Call(line=41, group="data", size=64)]
        return made

    verdict = diagnose(World([program(rank) for rank in range(4)], GROUPS).run().snapshot(still_s=300.0)).verdict
    assert verdict.cause == "rank-zero-only-collective", verdict.summary
    assert verdict.summary.startswith(
        "Rank 2 called broadcast (train.py:33) in step 6, which the other ranks did not call"
    )
    assert [(who.rank, who.where.line) for who in verdict.culprits if who.where] == [(2, 33)]
