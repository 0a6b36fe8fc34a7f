"""Lines of the watchdog of torch 2.0 and before: the shape of the first output, and before 2.0 no numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.logs.lines import asked_to_dump, blamed, far, gave_up, gave_up_in_old_words, judged


@pytest.mark.parametrize("prefix", ["", "[rank{}]:"])
def test_another_operation_under_one_number(prefix: str, tmp_path: Path) -> None:
    calls = [("ALLREDUCE", "25557032")] * 2 + [("BROADCAST", "53120"), ("ALLREDUCE", "25557032")]
    lines = [gave_up_in_old_words(rank, 2210, *call, prefix.format(rank)) for rank, call in enumerate(calls)]
    found = judged(tmp_path, "\n".join(lines))
    assert blamed(found) == [2]
    assert found.judgement is not None
    assert "rank 2 calls broadcast (53,120 elements)" in found.judgement.verdict.summary


def test_the_elements_are_those_of_all_dimensions(tmp_path: Path) -> None:
    shapes = ["512, 768", "384, 1024", "512", "512, 768"]
    lines = [gave_up_in_old_words(rank, 7, "ALLREDUCE", shape) for rank, shape in enumerate(shapes)]
    found = judged(tmp_path, "\n".join(lines))
    assert blamed(found) == [2]
    assert found.judgement is not None
    assert "ranks 0-1 and 3 call all_reduce (393,216 elements)" in found.judgement.verdict.summary


def test_a_rank_without_such_a_line_is_awaited(tmp_path: Path) -> None:
    lines = [gave_up_in_old_words(rank, 7, "ALLREDUCE", "512") for rank in (0, 1, 3)]
    assert blamed(judged(tmp_path, "\n".join(lines))) == [2]


def test_calls_without_numbers_blame_no_rank(tmp_path: Path) -> None:
    lines = [gave_up_in_old_words(rank, None, "ALLREDUCE", "512") for rank in (0, 1, 3)]
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    assert (found.status, found.verdict.culprits, found.verdict.victims) == ("hung", (), (0, 1, 3))
    assert "do not number the calls" in found.verdict.summary
    assert "rank 0: allreduce" in found.verdict.evidence


def test_the_name_of_a_group_may_stand_behind_a_blank(tmp_path: Path) -> None:
    """So torch 2.4 writes it: `[PG 3 (mesh_tp) Rank 0]`."""
    new = "[PG ID 3 PG GUID 3(mesh_tp) Rank"
    lines = [
        line.replace(f"Rank {4 + place}]", f"Rank {place}]")
        for place in range(3)
        for line in (gave_up(4 + place, 57), far(4 + place, 57, 60, 56, "3 PG GUID 3(mesh_tp)"))
    ]
    assert any(new in line for line in lines)
    old = [line.replace(new, "[PG 3 (mesh_tp) Rank") for line in lines]
    for told in (lines, old):
        found = judged(tmp_path, "\n".join(told)).judgement
        assert found is not None
        assert "all_reduce 57 of group 3 (mesh_tp)" in found.verdict.summary
        idle = judged(tmp_path, "\n".join((*told, asked_to_dump(7, 7, 7)))).judgement
        assert idle is not None
        said = [each.why_not for each in idle.verdict.alternatives]
        assert "rank 7 waits for nothing: if it belongs to the group, it has not come" in said
        busy = judged(tmp_path, "\n".join((*told, asked_to_dump(7, 8, 7)))).judgement
        assert busy is not None
        assert not any("waits for nothing" in each.why_not for each in busy.verdict.alternatives)
