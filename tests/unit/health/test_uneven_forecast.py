"""Training loaders of different lengths: told where steps wait for one another, and only there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.health import warnings
from hangwatch.model import (
    Collective,
    Frame,
    Progress,
    Reading,
    StepEntry,
)
from tests.unit.health.readings import loader, reading


def test_loaders_of_different_length_will_hang() -> None:
    (found,) = warnings([reading(0, loader(101)), reading(1, loader(100))])
    assert (found.kind, found.ranks) == ("uneven-forecast", (1,))
    assert "rank 1 has 100 batches, that of rank 0 101" in found.summary
    assert "at epoch 0, batch 100 (step 100)" in found.summary


def test_a_loader_that_was_resumed_further_on_than_others_will_hang() -> None:
    (found,) = warnings([reading(0, loader(100)), reading(1, loader(100, resumed_at=30))])
    assert (found.kind, found.ranks) == ("uneven-forecast", (1,))
    assert "The loader of rank 1 has 70 batches left, that of rank 0 100" in found.summary


def test_steps_that_wait_for_no_rank_may_make_up_for_unequal_lengths() -> None:
    """Gradients accumulated over four batches: of 15 and 16 batches each rank makes four steps that wait."""
    ledger = tuple(StepEntry(step, 0, step, 0, 40.0 + step, {"0": (step + 1) // 4}) for step in range(9))
    ranks = [replace(reading(rank, loader(15 + rank)), steps=ledger) for rank in range(2)]
    assert warnings(ranks) == ()


def test_the_step_counts_from_the_start_of_the_job() -> None:
    # GIVEN ranks in epoch 1 after 50 steps, whose loaders differ from this epoch on
    late = {"epoch": 1, "drawn_per_epoch": (50,), "exhausted_per_epoch": (True,)}
    progress = Progress(epoch=1, batch=2, step=52)
    ranks = [reading(rank, loader(60 + rank, **late), progress=progress) for rank in range(2)]
    # THEN
    assert "at epoch 1, batch 60 (step 110)" in warnings(ranks)[0].summary


JOIN = Collective(  # as a board has it, with the whole path
    "0",
    3,
    "all_reduce",
    ((1,),),
    frames=(
        Frame("/venv/torch/distributed/distributed_c10d.py", 3245, "all_reduce"),
        Frame("/venv/torch/distributed/c10d_logger.py", 83, "wrapper"),
        Frame("/venv/torch/distributed/algorithms/join.py", 330, "notify_join_context"),
        Frame("/venv/torch/nn/modules/module.py", 1780, "_call_impl"),
        Frame("train.py", 9, "main"),
    ),
)


@pytest.mark.parametrize(
    "short",
    [
        reading(1, loader(100, training=False)),  # validation on one rank
        reading(1),  # another rank has no loader at all
        reading(1, loader(None)),
        reading(1, loader(100, where=Frame("/home/ann/train.py", 90, "evaluate"))),
        reading(1, loader(100, dataset="Words")),
        reading(1, loader(100, exhausted=True)),
        reading(1, loader(100, epoch=1, drawn_per_epoch=(100,), exhausted_per_epoch=(True,))),  # it went well
        reading(1, loader(100), steps=()),
        reading(1, loader(100), steps=(StepEntry(0, 0, 0, 0, 0.0, {"0": 4}), StepEntry(1, 0, 1, 0, 1.0, {"0": 4}))),
        reading(1, loader(100), calls=(JOIN,)),
        reading(1, loader(100), loader(5)),
    ],
)
def test_unequal_loaders_may_be_innocent(short: Reading) -> None:
    assert warnings([reading(0, loader(101)), short]) == ()


def test_a_loop_that_is_always_left_early_is_innocent() -> None:
    left = {"epoch": 1, "drawn_per_epoch": (50,), "exhausted_per_epoch": (False,)}
    assert warnings([reading(rank, loader(100 + rank, **left)) for rank in range(2)]) == ()
