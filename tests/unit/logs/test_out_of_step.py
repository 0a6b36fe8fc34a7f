"""torch's desync report where a log holds nothing else: who is behind, and who stands in which call."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.model import Judgement
from tests.unit.logs.lines import blamed, gave_up, judged, set_up

HEAD = "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:"
WITHIN = "\t   - [{}] joined but didn't finish collective #{} (count from 1)"
BEHIND = "\t     [{}] finished collective #{}, but didn't join collective #{} (count from 1)"
NEVER = (
    "\t - To our best knowledge, ranks [{}] are the lagging ranks that caused this timeout. They never joined any"
    " collectives"
)


def at(place: int, number: int, op: str = "ALLREDUCE", *, rank: int | None = None, group: str = "") -> str:
    whose = f"[PG ID 1 PG GUID {group} Rank {place}] " if group else f"Rank {place}"
    return (
        f"[rank{place if rank is None else rank}]:[E1121 10:20:30.12 ProcessGroupNCCL.cpp:685] {whose}\n"
        f"\t - [{place}] Timeout at collective: {op}, #{number}"
    )


def states(*rows: tuple[int, str, str, str]) -> str:
    """A snapshot of number, started or finished, ranks and call."""
    told = [f"\t   #{number} {state} ranks:\n\t     [{ranks}] {state} {op}" for number, state, ranks, op in rows]
    return "\n".join(("\t - Snapshot of ranks' latest states:", *told))


def told(tmp_path: Path, *lines: str) -> Judgement:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    assert found.status == "hung"
    return found


def test_a_rank_that_did_not_join_is_behind(tmp_path: Path) -> None:
    snapshot = states((512, "finished", "6", "ALLREDUCE"), (513, "started", "0, 1, 2, 3, 4, 5, 7", "ALLREDUCE"))
    found = told(tmp_path, at(2, 513), HEAD, BEHIND.format(6, 512, 513), snapshot)
    assert [each.rank for each in found.verdict.culprits] == [6]
    assert found.verdict.victims == (0, 1, 2, 3, 4, 5, 7)
    assert found.verdict.summary == (
        "By torch's desync report rank 6 finished collective 512 and did not start 513; ranks 0-5 and 7 wait in"
        " collective 513 (allreduce)."
    )


def test_ranks_that_joined_nothing_are_behind(tmp_path: Path) -> None:
    found = told(tmp_path, at(2, 1), NEVER.format("3, 4"))
    assert [each.rank for each in found.verdict.culprits] == [3, 4]
    assert found.verdict.victims == (2,)
    # BUT where they are most of the ranks, the few that came may be the ones that are wrong
    report = (at(0, 1), NEVER.format("1, 2, 3"))
    (tmp_path / "two").mkdir()
    assert not told(tmp_path / "two", *report).verdict.culprits


def test_a_rank_in_an_earlier_call_is_not_to_blame(tmp_path: Path) -> None:
    snapshot = states((511, "started", "3", "ALLREDUCE"), (512, "started", "0, 1, 2", "ALLREDUCE"))
    found = told(tmp_path, at(2, 512), HEAD, WITHIN.format(3, 511), snapshot).verdict
    assert (found.cause, found.culprits, found.victims) == ("undetermined", (), (0, 1, 2, 3))
    assert "rank 3 waits in collective 511 (allreduce), which ranks 0-2 have passed" in found.summary
    assert found.summary.endswith("they wait for each other.")


def test_a_rank_that_finished_what_another_waits_in_is_not_to_blame(tmp_path: Path) -> None:
    found = told(tmp_path, HEAD, WITHIN.format(3, 511), BEHIND.format(6, 511, 512)).verdict
    assert not found.culprits
    assert "rank 3 waits in collective 511, which rank 6 has passed; rank 6 did not start 512." in found.summary


def test_calls_of_one_number_that_are_not_the_same(tmp_path: Path) -> None:
    snapshot = (
        states((511, "started", "3", "BROADCAST")),
        "\t     [0, 1, 2] started ALLREDUCE",
    )
    found = told(tmp_path, at(2, 511), HEAD, WITHIN.format("0, 1, 2, 3", 511), *snapshot).verdict
    assert (found.cause, found.certainty) == ("collective-mismatch", "likely")
    assert [each.rank for each in found.culprits] == [3]


def test_numbers_of_messages_do_not_compare(tmp_path: Path) -> None:
    snapshot = states((7, "finished", "3", "SEND"), (9, "started", "0, 1, 2", "RECV"))
    assert not told(tmp_path, at(2, 9, "RECV"), HEAD, BEHIND.format(3, 7, 8), snapshot).verdict.culprits


def test_all_are_in_one_call(tmp_path: Path) -> None:
    found = told(tmp_path, at(2, 9), HEAD, WITHIN.format("0, 1, 2", 9), states((9, "started", "0, 1, 2", "ALLREDUCE")))
    assert not found.verdict.culprits
    assert found.verdict.details == ("No rank of the report is behind another one.",)


def test_reports_of_several_ranks_are_one(tmp_path: Path) -> None:
    """GIVEN that a rank started a call after another one had written its report THEN it is not behind."""
    first = (
        at(0, 9),
        HEAD,
        BEHIND.format("1, 2", 8, 9),
        states((8, "finished", "1, 2", "X"), (9, "started", "0", "X")),
    )
    then = (at(1, 9), HEAD, BEHIND.format("2", 8, 9), states((8, "finished", "2", "X"), (9, "started", "0, 1", "X")))
    assert [each.rank for each in told(tmp_path, *first, *then).verdict.culprits] == [2]


@pytest.mark.parametrize("group", ["3(tp)", ""])
def test_numbers_of_another_group_name_no_rank_of_the_job(group: str, tmp_path: Path) -> None:
    report = (at(2, 9, rank=6, group=group), NEVER.format(3))
    found = told(tmp_path, *report).verdict
    assert (found.culprits, found.victims) == ((), (6,))
    assert ("group tp, by its own numbers" if group else "no line names, by its own numbers") in found.summary


def test_a_group_smaller_than_the_job_has_numbers_of_its_own(tmp_path: Path) -> None:
    ready = [set_up(rank, word, size=4) for word in ("START", "COMPLETE") for rank in range(4)]
    snapshot = states((8, "finished", "1", "ALLREDUCE"), (9, "started", "0", "ALLREDUCE"))
    found = told(tmp_path, *ready, at(0, 9), HEAD, BEHIND.format(1, 8, 9), snapshot).verdict
    assert (found.culprits, found.victims) == ((), (0,))


def test_beside_calls_that_were_given_up(tmp_path: Path) -> None:
    snapshot = states((8, "finished", "2", "ALLREDUCE"), (9, "started", "0, 1", "ALLREDUCE"))
    found = judged(tmp_path, "\n".join((gave_up(0, 9), at(1, 9), HEAD, BEHIND.format(2, 8, 9), snapshot)))
    assert blamed(found) == [2]
    assert found.judgement is not None
    assert found.judgement.verdict.summary.startswith("By torch's desync report rank 2 finished collective 8")
    assert any("finished collective 8 and did not start 9" in said for said in found.judgement.verdict.evidence)


def test_a_silent_rank_that_the_report_shows_in_an_earlier_call_is_not_to_blame(tmp_path: Path) -> None:
    snapshot = states((511, "started", "3", "ALLREDUCE"), (512, "started", "0, 1, 2", "ALLREDUCE"))
    lines = (*(gave_up(rank, 512) for rank in range(3)), at(2, 512), HEAD, WITHIN.format(3, 511), snapshot)
    found = told(tmp_path, *lines).verdict
    assert (found.culprits, found.victims) == ((), (0, 1, 2, 3))
    assert found.summary.endswith("they wait for each other.")
