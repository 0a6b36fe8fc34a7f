"""Who counts as a witness: the majority only while it keeps its own order, a habit only where all have a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_programs import BUCKETS, hybrid, hybrid_groups
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Join, Step, StuckKernel, Sync, every, mesh

GRADIENTS: list[Step] = [*BUCKETS, Join()]
STATISTICS: list[Step] = [Call("_all_gather_base", 90, 8, out=64)]
LOSS: list[Step] = [Call("all_reduce", 80, 1), Sync()]
ROUND: list[Step] = [*GRADIENTS, *STATISTICS, *LOSS]
WITHOUT: list[Step] = [*GRADIENTS, *LOSS]


def test_one_rank_that_kept_the_order_of_all_is_not_the_odd_one(tmp_path: Path) -> None:
    """Seven of eight leave a call out that all made in each round before."""
    few = {rank: [*ROUND * 5, *WITHOUT, *ROUND] for rank in range(8) if rank != 3}
    found = verdict(JobDumps(every(8, ROUND * 7, few)), tmp_path)
    assert found.certainty == "undetermined"
    assert blamed(found) != [3]


def test_one_rank_that_left_the_order_of_all_is_the_odd_one(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(8, ROUND * 7, {3: [*ROUND * 5, *WITHOUT, *ROUND]})), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [3])


def _over_two_groups(rank: int, *, without: bool) -> list[Step]:
    """A call of the group of all ranks between two of a smaller group: the small one alone shows no change."""
    small = f"half{rank // 4}"
    first, second = Call("all_reduce", 40, 16, small), Call("all_reduce", 42, 32, small)
    left_out: list[Step] = [first, second, Sync()]
    turn: list[Step] = [first, Call("all_reduce", 41, 8), second, Sync()]
    end: list[Step] = [Call("broadcast", 50, 4), Sync()]
    return [*turn * 4, *(left_out if without else turn), *end]


def test_most_ranks_are_no_witness_where_the_order_over_all_groups_shows_that_they_left_it(tmp_path: Path) -> None:
    programs = {rank: _over_two_groups(rank, without=rank != 2) for rank in range(8)}
    job = JobDumps(programs, {"half0": (0, 1, 2, 3), "half1": (4, 5, 6, 7)})
    found = verdict(job, tmp_path)
    assert found.certainty == "undetermined"
    assert blamed(found) != [2]
    # AND only ranks that came to the call are said to have made it
    assert "ranks 4-7 call broadcast" in found.summary


def test_two_ranks_of_four_do_not_tell_which_of_them_calls_the_wrong_thing(tmp_path: Path) -> None:
    other: list[Step] = [*ROUND * 5, Call("broadcast", 90, 8), Sync()]
    found = verdict(JobDumps(every(4, ROUND * 7, {1: other}), silent=(0, 3)), tmp_path)
    assert found.certainty == "undetermined"
    assert "collective-mismatch" in {found.cause, *(each.cause for each in found.alternatives)}
    # AND with the records of all ranks the majority tells, of a call of the same tensor
    (tmp_path / "all").mkdir()
    other = [*ROUND * 5, Call("broadcast", 90, 4096), Sync()]
    found = verdict(JobDumps(every(4, ROUND * 7, {1: other})), tmp_path / "all")
    assert (found.cause, blamed(found), found.certainty) == ("collective-mismatch", [1], "likely")


def test_a_call_that_stands_with_all_its_ranks_comes_before_a_rank_without_a_dump(tmp_path: Path) -> None:
    """The kernel of rank 5 holds up its group; a lost dump of rank 0 is no reason for that."""
    turn = {rank: [Call("all_reduce", 30, 64, f"half{rank // 4}"), *GRADIENTS, *LOSS] for rank in range(8)}
    programs: dict[int, list[Step]] = {rank: list(steps) * 5 for rank, steps in turn.items()}
    programs[5] = [*turn[5] * 3, StuckKernel(), *turn[5]]
    groups: dict[str, tuple[int, ...]] = {"half0": (0, 1, 2, 3), "half1": (4, 5, 6, 7)}
    found = verdict(JobDumps(programs, groups, timed=False, silent=(0,)), tmp_path)
    assert not found.culprits
    assert found.certainty == "undetermined"
    assert "half1" in found.summary or "group 2" in found.summary


def test_records_without_call_sites_prove_nothing(tmp_path: Path) -> None:
    report = Call("all_reduce", 95, 1)  # behind the statistics: their turn is no loop that ends before them
    ahead, without = ([*turn, report] for turn in ([*GRADIENTS, *STATISTICS], GRADIENTS))
    programs = every(4, [*ahead * 9, Sync()], {3: [*ahead * 5, *without, *ahead * 3, Sync()]})
    found = verdict(JobDumps(programs, frames=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [3], "likely")
    (tmp_path / "sites").mkdir()
    assert verdict(JobDumps(programs), tmp_path / "sites").certainty == "proven"


def test_a_call_of_no_round_in_place_of_a_round_s_first_is_not_called_a_likely_mismatch(tmp_path: Path) -> None:
    """It may be the end of the loop as well."""
    found = verdict(JobDumps(every(4, ROUND * 7, {2: [*ROUND * 6, Call("barrier", 199, 1), Sync()]})), tmp_path)
    assert (blamed(found), found.certainty) == ([2], "undetermined")
    assert found.cause == "uneven-steps"
    assert {"rank-local-decision", "skipped-collective"} <= {each.cause for each in found.alternatives}


def test_a_call_that_is_new_to_a_rank_is_new_although_the_rank_repeats_it(tmp_path: Path) -> None:
    """An evaluation after the loop, of several like calls: the first of them meets the others' next round."""
    after: list[Step] = [*[Call("all_gather", 150, 8, out=32)] * 3, Sync()]
    found = verdict(JobDumps(every(4, ROUND * 7, {2: [*ROUND * 6, *after]})), tmp_path)
    assert (found.cause, blamed(found)) == ("uneven-steps", [2])


def test_the_many_at_a_new_call_are_not_to_blame_for_the_few_that_are_a_round_behind(tmp_path: Path) -> None:
    """Three ranks ended their loop as they should; which side made a round too many or too few, nothing tells."""
    after: list[Step] = [Call("all_reduce", 150, 2), Sync()]
    found = verdict(JobDumps(every(4, [*ROUND * 6, *after], {1: ROUND * 7}), timed=False), tmp_path)
    assert found.certainty == "undetermined"
    assert blamed(found) != [0, 2, 3]


def _layers(rank: int, *, without: int = -1) -> list[Step]:
    """Three layers of one line in a group of two, and the gradients across."""
    layers: list[Step] = [Call("all_reduce", 40, 16, f"tp{rank // 2}")] * (2 if without == rank else 3)
    return [*layers, Call("all_reduce", 50, 256, f"dp{rank % 2}"), Call("all_reduce", 60, 1, f"tp{rank // 2}"), Sync()]


def test_of_two_ranks_the_one_that_those_of_other_groups_do_not_agree_with_left_the_order(tmp_path: Path) -> None:
    programs = {rank: [*_layers(rank) * 4, *_layers(rank, without=5), *_layers(rank)] for rank in range(8)}
    found = verdict(JobDumps(programs, mesh(4, 2), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [5], "likely")
    assert any("ranks 0-3 and 6-7, in other groups" in said for said in found.evidence)
    # AND where the other of the two did so, that one
    (tmp_path / "other").mkdir()
    programs = {rank: [*_layers(rank) * 4, *_layers(rank, without=4), *_layers(rank)] for rank in range(8)}
    assert blamed(verdict(JobDumps(programs, mesh(4, 2), timed=False), tmp_path / "other")) == [4]


def test_a_rank_that_left_its_loop_is_named_also_where_others_wait_behind_those_that_wait_for_it(
    tmp_path: Path,
) -> None:
    """Ranks of the other shard wait for its replica, and stand in no call of the circle."""
    end: list[Step] = [Call("barrier", 700, 1), Sync()]
    programs = {rank: [*hybrid(rank, 6 if rank != 2 else 4), *end] for rank in range(8)}
    found = verdict(JobDumps(programs, hybrid_groups(8), timed=False), tmp_path)
    assert (blamed(found), found.certainty) == ([2], "undetermined")
    assert "uneven-steps" in {each.cause for each in found.alternatives}


def test_most_ranks_that_leave_out_a_call_of_many_rounds_are_named(tmp_path: Path) -> None:
    """Two of eight make it as all did in each of twelve rounds before."""
    few = {rank: [*ROUND * 12, *WITHOUT, *ROUND] for rank in range(8) if rank not in (1, 4)}
    found = verdict(JobDumps(every(8, ROUND * 14, few)), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [0, 2, 3, 5, 6, 7], "likely")
    assert [each.cause for each in found.alternatives] == ["rank-local-decision"]


def test_few_that_log_in_the_round_in_which_all_have_always_logged_left_nothing_out(tmp_path: Path) -> None:
    logged: list[Step] = [*ROUND * 4, Call("all_gather", 95, 3, out=24), Sync()]
    without = {rank: [*logged * 6, *ROUND * 4, *logged] for rank in range(8) if rank not in (3, 5)}
    found = verdict(JobDumps(every(8, logged * 8, without), timed=False), tmp_path)
    assert blamed(found) != [3, 5]
    assert found.certainty == "undetermined"


def test_a_call_that_is_new_in_a_short_record_breaks_no_habit(tmp_path: Path) -> None:
    """Of two ranks, rank 1 leaves out the call that ends each turn; the last such call of rank 0 is not recorded."""
    layers: list[Step] = [Call("_all_gather_base", 30, 64, out=128)] * 9
    turn: list[Step] = [*layers, Call("all_reduce", 31, 1), Sync()]
    job = JobDumps({0: turn * 9, 1: [*turn * 7, *layers, *turn * 2]}, timed=False, window=14)
    found = verdict(job, tmp_path)
    assert found.certainty == "undetermined"
    assert blamed(found) != [0]


@pytest.mark.parametrize("culprit", [0, 1])
def test_without_lines_the_other_groups_tell_who_is_odd_and_not_always_why(culprit: int, tmp_path: Path) -> None:
    """One call behind the place may agree by chance."""
    pairs: dict[str, tuple[int, ...]] = {f"ep{pair}": (2 * pair, 2 * pair + 1) for pair in range(3)}
    programs: dict[int, list[Step]] = {}
    for rank in range(6):
        group = f"ep{rank // 2}"
        counts: list[Step] = [Call("all_to_all", 55, 8, group, "Long"), Sync()]
        tokens: list[Step] = [Call("all_to_all", 63, 300, group), Call("all_to_all", 70, 300, group)]
        turn: list[Step] = [*counts, *tokens, *counts, *tokens, Call("all_reduce", 90, 16), Sync()]
        odd: list[Step] = [*counts, *tokens, *counts, *counts]
        programs[rank] = [*turn * 3, *odd] if rank == culprit else turn * 4
    found = verdict(JobDumps(programs, pairs, timed=False, frames=False), tmp_path)
    assert (found.certainty, blamed(found)) == ("undetermined", [culprit])
