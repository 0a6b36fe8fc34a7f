"""`group-order-cycle`: groups used in opposite order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Certainty, Frame, Snapshot, Status
from tests.unit.rules.step.worlds import STEP, Groups, Program, world
from tests.unit.simulator import SCRIPT, Call, blamed_ranks


def test_two_groups_in_opposite_order_are_a_circle_of_all_ranks_in_it() -> None:
    groups: Groups = {"a": [(0, 1)], "b": [(0, 1)]}
    one, other = Call(group="a", line=20), Call(group="b", line=21)
    judgement = diagnose(world([*STEP * 3, one, other], [*STEP * 3, other, one], groups=groups))
    assert judgement.verdict.cause == "group-order-cycle"
    assert judgement.status is Status.HUNG
    assert sorted(rank or 0 for rank in blamed_ranks(judgement)) == [0, 1]
    assert [wait.awaited for wait in judgement.verdict.waits] == [(1,), (0,)]


def test_a_ring_over_four_groups_is_found_whole() -> None:
    groups: Groups = {f"g{rank}": [(rank, (rank + 1) % 4)] for rank in range(4)}
    programs = [[*STEP * 2, Call(group=f"g{rank}"), Call(group=f"g{(rank - 1) % 4}")] for rank in range(4)]
    judgement = diagnose(world(*programs, groups=groups))
    assert judgement.verdict.cause == "group-order-cycle"
    assert len(judgement.verdict.waits) == 4


def test_the_ranks_that_took_two_groups_in_another_order_than_before_are_to_blame() -> None:
    """One line reduces over both groups; in the last turn ranks 0 and 3 sorted them the other way round."""
    groups: Groups = {"tp": [(0, 1), (2, 3)], "dp": [(0, 2), (1, 3)]}
    tp, dp = Call(group="tp", line=13), Call(group="dp", line=13)
    usual, odd = [tp, dp], [dp, tp]
    programs: list[Program] = [[*usual * 4, *(odd if rank in (0, 3) else usual)] for rank in range(4)]
    judgement = diagnose(world(*programs, groups=groups))
    assert judgement.verdict.cause == "group-order-cycle"
    assert blamed_ranks(judgement) == [0, 3]
    assert "ranks 0 and 3 alone have left the order of calls that they kept before" in judgement.verdict.evidence


def test_where_a_rank_has_no_turns_on_record_all_of_the_circle_take_part_alike() -> None:
    groups: Groups = {"tp": [(0, 1), (2, 3)], "dp": [(0, 2), (1, 3)]}
    tp, dp = Call(group="tp", line=13), Call(group="dp", line=13)
    programs: list[Program] = [[dp, tp] if rank in (0, 3) else [tp, dp] for rank in range(4)]
    assert set(blamed_ranks(diagnose(world(*programs, groups=groups)))) == {0, 1, 2, 3}


def test_a_call_of_one_row_left_out_rounds_before_is_no_matter_of_order() -> None:
    """Its row's later calls are paired in silence, until a call of all ranks that comes once in ten rounds."""
    groups: Groups = {"tp": [(0, 1), (2, 3)], "dp": [(0, 2), (1, 3)]}
    tp, dp, metric = Call(group="tp", line=13), Call(group="dp", line=14), Call(line=16)

    def program(rank: int) -> Program:
        rounds = ([tp, dp] if (rank, turn) != (2, 13) else [dp] for turn in range(20))
        return [call for turn, calls in enumerate(rounds) for call in (*calls, *([metric] if turn % 10 == 9 else []))]

    judgement = diagnose(world(*map(program, range(4)), groups=groups))
    assert judgement.verdict.cause == "skipped-collective"
    assert blamed_ranks(judgement) == [2]
    assert judgement.verdict.hang is Certainty.PROVEN
    assert any("left out all_reduce 14" in sentence for sentence in judgement.verdict.evidence)


def test_all_ranks_of_a_row_that_left_a_round_out_are_named_and_no_other() -> None:
    """The circle itself is of one rank of that row and one of the other; its twin waits beside it."""
    groups: Groups = {"tp": [(0, 1), (2, 3)], "dp": [(0, 2), (1, 3)]}
    tp, dp, metric = Call(group="tp", line=13), Call(group="dp", line=14), Call(line=16)

    def program(rank: int) -> Program:
        rounds = ([tp, dp, dp] if rank < 2 or turn != 13 else [tp] for turn in range(20))
        return [call for turn, calls in enumerate(rounds) for call in (*calls, *([metric] if turn % 10 == 9 else []))]

    judgement = diagnose(world(*map(program, range(4)), groups=groups))
    assert judgement.verdict.cause == "skipped-collective"
    assert blamed_ranks(judgement) == [2, 3]
    assert "Rank 3 left out the same call in another group." in judgement.verdict.summary


def one_row_of(turns: int, *, last: Program) -> Snapshot:
    """One line reduces over a row and over all; rank 2 alone made `last` in its last turn, and stands in its first."""
    groups: Groups = {"tp": [(0, 1), (2, 3)]}
    usual: Program = [Call(group="tp", line=13, size=16), Call(line=13)]
    return world(*([*usual * turns, *(last if rank == 2 else usual)] for rank in range(4)), groups=groups)


IN_TURN: Program = [Call(line=13), Call(group="tp", line=13, size=16)]
LEFT_OUT: Program = [Call(line=13)]
PAST_IT = Bypass(Frame(SCRIPT, 12, "main"), "if not t.any(): continue", inner=True, asks="value")


@pytest.mark.parametrize("last", [IN_TURN, LEFT_OUT], ids=["in another order", "left out"])
@pytest.mark.parametrize(
    ("ways", "cause"),
    [((), "group-order-cycle"), ((PAST_IT,), "skipped-collective")],
    ids=["the source shows no way past it", "and a way past it"],
)
def test_the_source_tells_a_call_of_one_line_left_out_from_one_made_later(
    last: Program, ways: tuple[Bypass, ...], cause: str
) -> None:
    """Nothing that was recorded tells it: either way the rank stands in the call that it made in place of the other."""
    found = one_row_of(4, last=last)
    (lines,) = {call.frames for rank in found.ranks for call in rank.collectives.recent}
    judgement = diagnose(replace(found, call_sites=(CallSite(lines, ways),)))
    assert judgement.verdict.cause == cause
    assert judgement.verdict.certainty is Certainty.LIKELY
    assert blamed_ranks(judgement) == [2]


def test_of_a_line_without_source_it_is_not_told_what_became_of_its_call() -> None:
    judgement = diagnose(one_row_of(4, last=IN_TURN))
    assert judgement.verdict.certainty is not Certainty.PROVEN
    assert set(blamed_ranks(judgement)) <= {2}
