"""Places of calls that autograd's threads issued: the path to backward, where ranks can be compared by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import Collective, Collectives, Frame, GroupHead, RankEvidence
from hangwatch.ranks.comparable_places import with_comparable_places

BACKWARD = (Frame("/site-packages/torch/autograd/graph.py", 829, "_engine_run_backward"), Frame("train.py", 12, "main"))


def rank(number: int, *, source: str = "flight-recorder", backend: str = "nccl") -> RankEvidence:
    calls = (
        Collective("0", 1, "all_reduce", thread_name="pt_autograd_0", frames=BACKWARD),
        Collective("0", 2, "barrier", thread_name="MainThread", frames=BACKWARD[1:]),
    )
    return RankEvidence(number, collectives=Collectives((GroupHead("0", (0, 1), backend=backend),), calls, (), source))


def places(*ranks: RankEvidence) -> list[list[int]]:
    return [[len(call.frames) for call in each.collectives.recent] for each in with_comparable_places(ranks)]


def test_where_every_rank_has_a_record_of_them_they_are_compared() -> None:
    ranks = (rank(0), rank(1))
    assert with_comparable_places(ranks) is ranks


@pytest.mark.parametrize("parts", [{"source": "board"}, {"backend": "cpu:gloo,cuda:nccl"}])
def test_where_one_rank_cannot_have_them_no_rank_is_told_by_them(parts: dict[str, str]) -> None:
    assert places(rank(0), rank(1, **parts)) == [[0, 1], [0, 1]]


def test_a_group_of_gloo_beside_theirs_takes_no_place_away() -> None:
    beside = GroupHead("1", (0, 1), backend="gloo")
    ranks = tuple(
        replace(each, collectives=replace(each.collectives, heads=(*each.collectives.heads, beside)))
        for each in (rank(0), rank(1))
    )
    assert with_comparable_places(ranks) is ranks


def test_calls_of_python_code_have_their_place_in_any_case() -> None:
    (call, _), (_, other) = (each.collectives.recent for each in (rank(0), rank(1)))
    alone = replace(rank(0), collectives=replace(rank(0).collectives, recent=(replace(call, frames=()), other)))
    assert places(alone, rank(1, source="board")) == [[0, 1], [0, 1]]
