"""Environment variables that are not the same on all ranks."""

from __future__ import annotations

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.variables import separating, unlike_variables
from tests.unit.job import IN_BARRIER, IN_CODE, judge, rank, snapshot

Known = dict[str, str] | None


def case(*variables: Known) -> Case:
    return Case(snapshot(*(rank(n, IN_CODE, evidence={"variables": each}) for n, each in enumerate(variables))))


def told(*variables: Known) -> list[str]:
    return [each.told for each in unlike_variables(case(*variables))]


def test_sides_of_different_values_and_a_side_without_one() -> None:
    what = "the environment variable EVERY, which the program names,"
    assert told({"EVERY": "a"}, {"EVERY": "a"}, {"EVERY": "b"}) == [f"{what} differs between rank 2 and ranks 0-1"]
    assert told({"EVERY": "a"}, {"EVERY": "a"}, {}) == [f"{what} is not set on rank 2"]


@pytest.mark.parametrize(
    "variables",
    [
        ({"EVERY": "a"}, {"EVERY": "a"}),
        ({"EVERY": "a"}, None),
        ({"SLURM_PROCID": "a"}, {"SLURM_PROCID": "b"}),
        tuple({"PART": str(n)} for n in range(3)),
        ({"SHARD_ID": "a"}, {"SHARD_ID": "b"}),
    ],
    ids=["alike", "not known", "each rank's own by its name", "each rank's own by its values", "of a shard"],
)
def test_what_is_alike_or_as_it_should_be_is_not_told(variables: tuple[Known, ...]) -> None:
    assert told(*variables) == []


def test_of_ranks_that_are_blamed_only_what_separates_them_from_the_others() -> None:
    found = case({"A": "1", "B": "1"}, {"A": "1", "B": "2"}, {"A": "2", "B": "2"})
    assert [each.name for each in separating(found, {2})] == ["A"]
    assert [each.name for each in separating(found, {0, 1, 2})] == ["A", "B"]


@pytest.mark.parametrize(("digest", "is_told"), [("other", True), ("same", False)])
def test_the_verdict_tells_it(digest: str, *, is_told: bool) -> None:
    ranks = [rank(n, IN_BARRIER, issued=4, completed=3, evidence={"variables": {"EVERY": "same"}}) for n in (0, 1)]
    verdict = judge(*ranks, rank(2, evidence={"variables": {"EVERY": digest}}), world_size=3).verdict
    assert verdict.cause == "undetermined"
    assert any("EVERY" in each for each in verdict.evidence) is is_told
