"""The ranks' plans side by side: each difference where it parts them, and silence where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangwatch.health import FORECASTS, warnings
from hangwatch.health.step_waits import draws_all
from hangwatch.model import Frame, GroupHead, GroupMade, LoaderFacts, Reading
from tests.unit.health.readings import distributed, loader, reading

DDP = {"model": "DistributedDataParallel", "parameters": "4, ab12", "find_unused_parameters": "False"}


def planned(rank: int, *loaders: LoaderFacts, plan: dict[str, str] | None = None, **parts: Any) -> Reading:
    """A rank whose model has made its first forward, and no step."""
    made = reading(rank, *loaders, **({"steps": ()} | parts))
    return replace(made, identity=replace(made.identity, plan=DDP | (plan or {})))


def said(*readings: Reading) -> list[str]:
    found = warnings(readings)
    assert {each.kind for each in found} <= FORECASTS
    return [each.summary for each in found]


def test_equal_plans_are_no_news() -> None:
    assert said(*(planned(rank, distributed(rank)) for rank in range(2))) == []


DIFFERENCES: list[tuple[str, Callable[[], tuple[Reading, Reading]]]] = [
    ("different world sizes: 2 on rank 0, 3 on rank 1", lambda: (planned(0), planned(1, world=3))),
    ("the models' parameters differ", lambda: (planned(0), planned(1, plan={"parameters": "5, cd34"}))),
    (
        "find_unused_parameters differs: False on rank 0, True",
        lambda: (planned(0), planned(1, plan={"find_unused_parameters": "True"})),
    ),
    (
        "the communication hook of DDP differs: none on rank 0, fp16_compress_hook on rank 1",
        lambda: (planned(0, plan={"comm_hook": ""}), planned(1, plan={"comm_hook": "fp16_compress_hook"})),
    ),
    (
        "The seed of the ranks' samplers differs",
        lambda: (planned(0, distributed(0, sampler_seed=1)), planned(1, distributed(1, sampler_seed=2))),
    ),
    (
        "The shuffle of the ranks' samplers differs",
        lambda: (planned(0, distributed(0)), planned(1, distributed(1, shuffle=False))),
    ),
    (
        "Group 1 is made of different ranks",
        lambda: (planned(0, groups_made=made((0, 1), (0,))), planned(1, groups_made=made((0, 1), (1,)))),
    ),
]


def made(*groups: tuple[int, ...]) -> tuple[GroupMade, ...]:
    return tuple(
        GroupMade(number, ranks, str(number), True, Frame("t.py", 7, "f")) for number, ranks in enumerate(groups)
    )


@pytest.mark.parametrize(("words", "ranks"), DIFFERENCES, ids=[words[:30] for words, _ in DIFFERENCES])
def test_a_difference_that_makes_the_ranks_diverge(words: str, ranks: Callable[[], tuple[Reading, Reading]]) -> None:
    (summary,) = said(*ranks())
    assert words in summary


@pytest.mark.parametrize(
    "innocent",
    [
        # Pipelines have other models on each stage, and groups of their own.
        lambda: tuple(
            planned(r, plan={"parameters": str(r)}, heads=(GroupHead("0", (0, 1)), GroupHead("1", (r,))))
            for r in range(2)
        ),
        lambda: (
            planned(0, distributed(0, sampler_seed=1, shuffle=False)),
            planned(1, distributed(1, sampler_seed=2, shuffle=False)),
        ),
        lambda: (planned(0, groups_made=made((0, 1), (0,))), planned(1, groups_made=made((0, 1)))),  # it may still come
        lambda: (planned(0, loader(batch_size=8)), planned(1, loader(batch_size=4))),  # a slower GPU
    ],
)
def test_differences_that_are_innocent(innocent: Callable[[], tuple[Reading, ...]]) -> None:
    assert said(*innocent()) == []


# ---------------------------------------------------------------- before the first step

WHOLE = """
for epoch in range(3):
    for batch, (x, y) in enumerate(tqdm(loader)):
        train(x, y)
"""
SHORTENED = [
    WHOLE.replace("train(x, y)", "train(x, y)\n        if batch == 100:\n            break"),
    WHOLE.replace("enumerate(tqdm(loader))", "islice(loader, 100)"),
    WHOLE.replace("enumerate(tqdm(loader))", "zip(range(100), loader)"),
    WHOLE.replace("for epoch in range(3):", "with Join([model]):"),
    WHOLE.replace("train(x, y)", "with model.no_sync():\n            train(x, y)"),
    "def step():\n\n    return next(batches)\n",
    "for batch in (",
]


def test_a_loop_over_all_of_its_loader(tmp_path: Path) -> None:
    assert draws_all(Frame("/home/ann/train.py", 3, "main"), lambda file: WHOLE)
    assert not draws_all(Frame("/home/ann/train.py", 3, "main"), lambda file: None)
    assert not draws_all(None)


@pytest.mark.parametrize("source", SHORTENED)
def test_a_loop_that_may_end_before_its_loader(source: str) -> None:
    assert not draws_all(Frame("/home/ann/train.py", 3, "main"), lambda file: source)


def test_unequal_lengths_are_told_before_the_first_step(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(WHOLE)
    at = Frame(str(script), 3, "main")
    ranks = [planned(rank, loader(100 + rank, where=at, batch_size=8, drop_last=False)) for rank in range(2)]
    (found,) = warnings(ranks)
    assert "rank 0 has 100 batches, that of rank 1 101: the job will hang at epoch 0, batch 100" in found.summary
    assert found.evidence[0] == "rank 0: 100 batches (batch size 8, drop_last=False)"
    assert said(*(replace(each, identity=replace(each.identity, plan={})) for each in ranks)) == []
