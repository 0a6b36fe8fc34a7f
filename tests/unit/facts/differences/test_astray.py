"""A rank that takes another group at a line than ever before: both groups are mispaired from there on."""

from __future__ import annotations

from hangwatch.judge import diagnose
from tests.unit.simulator import SCRIPT, Action, Call, Draw, World

GROUPS = {"data": [(0, 2), (1, 3)], "tensor": [(0, 1), (2, 3)]}


def program(rank: int, *, wrong: int, since: int) -> list[Action]:
    made: list[Action] = []
    for step in range(12):
        strays = rank == wrong and step >= since
        made += [Draw(), Call(line=41, group="data", size=64)]
        made += [Call(line=16, group="tensor" if strays else "data", size=4)]
    return made


def test_the_rank_that_took_the_wrong_group_is_named_with_its_line() -> None:
    programs = [program(rank, wrong=2, since=5) for rank in range(4)]
    verdict = diagnose(World(programs, GROUPS).run().snapshot(still_s=300.0)).verdict
    assert (verdict.cause, verdict.certainty) == ("collective-mismatch", "likely"), verdict.summary
    assert [(who.rank, who.where.file, who.where.line) for who in verdict.culprits if who.where] == [(2, SCRIPT, 16)]
    assert "called all_reduce (train.py:16) in group tensor in step 5, where its earlier calls were in group data" in (
        verdict.summary
    )


def test_a_call_beside_the_usual_one_is_an_added_call() -> None:
    def saving(rank: int) -> list[Action]:
        made: list[Action] = []
        for step in range(12):
            made += [Draw(), Call(line=16, group="data", size=4)]
            made += [Call(line=16, group="tensor", size=4)] if rank == 2 and step == 8 else []
        return made

    verdict = diagnose(World([saving(rank) for rank in range(4)], GROUPS).run().snapshot(still_s=300.0)).verdict
    assert "where its earlier calls were" not in verdict.summary
    assert [who.rank for who in verdict.culprits] == [2]


def test_a_line_that_had_led_to_both_groups_before_says_nothing() -> None:
    def alternating(rank: int) -> list[Action]:
        made: list[Action] = []
        for step in range(12):
            group = "tensor" if step % 2 or (rank == 2 and step == 8) else "data"
            made += [Draw(), Call(line=16, group=group, size=4)]
        return made

    verdict = diagnose(World([alternating(rank) for rank in range(4)], GROUPS).run().snapshot(still_s=300.0)).verdict
    assert "where its earlier calls were" not in verdict.summary
