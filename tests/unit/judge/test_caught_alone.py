"""What the culprits alone have caught is told, whatever the cause is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.differences.caught_errors import all_caught
from hangwatch.model import ExceptionFacts, Frame
from hangwatch.ranks.view import RankView
from tests.unit.job import IN_BARRIER, IN_CODE, SCRIPT, judge, rank

LOAD = (Frame("/lib/python3.11/site-packages/torch/serialization.py", 776, "load"), Frame(SCRIPT, 12, "resume"))


def missing(step: int | None = None, line: int = 12) -> ExceptionFacts:
    frames = (LOAD[0], Frame(SCRIPT, line, "resume"))
    return ExceptionFacts("FileNotFoundError", "no such file: last.pt", frames, "MainThread", at=1.0, step=step)


def told(*caught: tuple[ExceptionFacts, ...]) -> list[str]:
    """Of ranks of which the last one is stuck in its own code, and the others wait for it."""
    *waiting, stuck = enumerate(caught)
    ranks = [rank(n, IN_BARRIER, issued=4, completed=3, world_size=3, caught=each) for n, each in waiting]
    ranks.append(rank(stuck[0], IN_CODE, issued=3, completed=3, world_size=3, caught=stuck[1]))
    verdict = judge(*ranks, world_size=3).verdict
    assert [who.rank for who in verdict.culprits] == [2]
    return [each for each in verdict.evidence if "caught" in each]


@pytest.mark.parametrize(("step", "when"), [(None, "before the first step"), (3, "in step 3")])
def test_an_error_that_no_other_rank_has_caught(step: int | None, when: str) -> None:
    error = "FileNotFoundError: no such file: last.pt (train.py:12)"
    assert told((), (), (missing(step),)) == [f"rank 2 alone caught {error} {when}"]


@pytest.mark.parametrize(
    "caught",
    [((missing(),), (), (missing(),)), ((missing(),), (missing(),), ())],
    ids=["another rank too", "only others"],
)
def test_what_others_have_caught_as_well_says_nothing(caught: tuple[tuple[ExceptionFacts, ...], ...]) -> None:
    assert told(*caught) == []


def test_the_same_error_at_another_line_is_another_one() -> None:
    assert len(told((missing(line=30),), (), (missing(),))) == 1


@pytest.mark.parametrize("kept", [400, 1000])
def test_an_error_on_its_way_out_was_caught_by_nobody_also_where_less_of_its_text_is_kept(kept: int) -> None:
    text = "Expected to have finished reduction. " * 20
    frames = (Frame(SCRIPT, 12, "resume"),)
    on_its_way = ExceptionFacts("RuntimeError", text[:kept], frames, "MainThread", at=1.0, step=5, fatal=False)
    ended = ExceptionFacts("RuntimeError", text, frames, "MainThread", at=1.1, step=5)
    found = rank(1, IN_CODE, caught=(on_its_way,), exception=ended)
    assert all_caught(RankView(1, found, sampled_twice=True)) == []
    other = replace(ended, message="another one")
    found = rank(1, IN_CODE, caught=(on_its_way,), exception=other)
    assert all_caught(RankView(1, found, sampled_twice=True)) == [on_its_way]
