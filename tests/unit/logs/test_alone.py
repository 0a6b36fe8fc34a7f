"""A rank that waits alone in a group whose members the watchdog's lines do not name."""

from __future__ import annotations

from pathlib import Path

from hangwatch.model import Verdict
from tests.unit.logs.lines import far, gave_up, judged


def waits(rank: int, number: int, group: str, place: int) -> list[str]:
    """The lines of a rank that gave up a call of a group in which it has the number `place`."""
    return [
        gave_up(rank, number),
        far(rank, number, number, number - 1, group).replace(f" Rank {rank}]  ", f" Rank {place}]  "),
    ]


def told(tmp_path: Path, *lines: list[str]) -> Verdict:
    found = judged(tmp_path, "\n".join(said for each in lines for said in each)).judgement
    assert found is not None
    return found.verdict


DEFAULT = "0 PG GUID 0(default_pg)"
STAGE = "3 PG GUID 9(stage)"


def test_the_only_rank_that_can_be_the_member_that_has_not_come_is_named(tmp_path: Path) -> None:
    """GIVEN rank 4, the first of its group, and nothing above it but rank 5, which waits for all elsewhere"""
    rest = [waits(rank, 70, DEFAULT, rank) for rank in (1, 3, 5)]
    found = told(tmp_path, waits(0, 12, "5 PG GUID 6(rows)", 0), waits(2, 12, "5 PG GUID 6(rows)", 1), *rest,
                 waits(4, 300, STAGE, 0))  # fmt: skip
    assert (found.cause, found.certainty, [each.rank for each in found.culprits]) == (
        "undetermined",
        "undetermined",
        [5],
    )
    assert found.summary == (
        "Rank 4 waits alone in all_reduce 300 of group 9 (stage): another member of that group has not come, or left no"
        " line of it; of the ranks that these logs name, only rank 5 can be that member."
    )
    assert found.victims == (0, 1, 2, 3, 4)
    assert "rank 4 is the first of that group, in which torch keeps the ranks in their order" in found.evidence
    assert "torch's watchdog gave up after 10 min on ranks 0-4: victims, not the cause" in found.evidence
    assert [edge.awaited for edge in found.waits if 4 in edge.waiting] == [(5,)]


def test_where_several_may_be_that_member_none_is_blamed(tmp_path: Path) -> None:
    rest = [waits(rank, 12, "5 PG GUID 6(rows)", place) for place, rank in enumerate((0, 3))]
    found = told(tmp_path, *rest, waits(1, 300, STAGE, 0))
    assert found.culprits == ()
    assert found.summary.endswith("these lines do not name it, and it may be any of ranks 2-3.")
    # AND a rank that stands in another group that the program calls alike is not that member
    found = told(tmp_path, *rest, waits(1, 300, STAGE, 0), waits(2, 300, "3 PG GUID 8(stage)", 0),
                 waits(5, 300, "3 PG GUID 8(stage)", 1))  # fmt: skip
    assert found.summary.endswith("it may be any of ranks 3-4.")


def test_the_log_of_one_rank_alone_names_no_other(tmp_path: Path) -> None:
    found = told(tmp_path, waits(4, 300, STAGE, 0))
    assert (found.culprits, found.summary.endswith("; these lines do not name it.")) == ((), True)
    assert found.fix.startswith("give the logs of all ranks")


def test_ranks_that_wait_together_are_not_alone(tmp_path: Path) -> None:
    found = told(tmp_path, *(waits(rank, 300, STAGE, rank) for rank in (0, 1)))
    assert "alone" not in found.summary
    # AND a rank that is told of otherwise, and did not come, is blamed as before
    others = [waits(rank, 70, DEFAULT, rank) for rank in (0, 1, 3)]
    behind = far(2, 69, 69, 69, DEFAULT)
    assert [each.rank for each in told(tmp_path, *others, [behind]).culprits] == [2]
