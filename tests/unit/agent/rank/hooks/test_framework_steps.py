"""The steps of a framework that counts them itself: what its loader draws ahead is no step."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from hangwatch.model import Phase
from hangwatch_agent.board import layout as b
from hangwatch_agent.rank.hooks.loader import LoaderHook
from tests.unit.agent.rank.hooks.conftest import Watched

BATCHES = 4


@pytest.fixture
def loader(watched: Watched) -> DataLoader[torch.Tensor]:
    hook = LoaderHook(watched.context)
    hook.install()
    watched.publish.append(hook.count)
    return DataLoader(torch.arange(BATCHES))  # type: ignore[arg-type]


def train(watched: Watched, loader: DataLoader[torch.Tensor], epoch: int) -> None:
    """One epoch of a trainer that draws one batch ahead."""
    batches = iter(loader)
    ahead = next(batches, None)
    for number in range(BATCHES):
        ahead = next(batches, None)
        watched.context.steps.named(epoch, number)
    assert ahead is None


def test_each_batch_is_one_step_under_the_frameworks_own_number(
    watched: Watched, loader: DataLoader[torch.Tensor]
) -> None:
    train(watched, loader, 0)
    watched.context.board.words[b.W_OPTIMIZER_STEPS] = BATCHES
    train(watched, loader, 1)
    whole = [(step, step // BATCHES, step % BATCHES) for step in range(2 * BATCHES)]
    assert watched.steps == whole[-len(watched.steps) :]
    assert len(watched.steps) > BATCHES
    assert watched.loader.drawn == BATCHES


def test_steps_of_before_the_training_are_forgotten(watched: Watched) -> None:
    for _ in range(3):
        watched.context.steps.tick()  # a sanity check, say
    watched.context.steps.named(0, 0)
    assert watched.context.steps.step == 0


def test_no_other_source_takes_over(watched: Watched, loader: DataLoader[torch.Tensor]) -> None:
    watched.context.steps.named(0, 0)
    watched.context.steps.tick()
    list(loader)
    watched.context.steps.take_back(0)
    assert watched.context.steps.step == 0


def test_a_framework_that_is_done_leaves_the_steps_to_the_loader(
    watched: Watched, loader: DataLoader[torch.Tensor]
) -> None:
    watched.context.steps.named(0, 0)
    watched.context.steps.released()
    list(loader)
    assert watched.context.steps.step == BATCHES


def test_an_evaluation_is_one_from_its_first_moment(watched: Watched) -> None:
    steps, phases = watched.context.steps, []
    steps.named(0, 7)
    for phase in (b.EVAL, b.STEP):
        steps.stage(phase)
        phases.append(watched.reading.phase)
    steps.released()
    assert [*phases, watched.reading.phase] == [Phase.EVAL, Phase.STEP, Phase.BETWEEN]


def test_what_a_framework_says_outlasts_the_draws_of_its_loader(
    watched: Watched, loader: DataLoader[torch.Tensor]
) -> None:
    watched.context.steps.named(0, 7)
    watched.context.steps.stage(b.EVAL)
    batches = iter(loader)
    next(batches)
    assert watched.reading.phase is Phase.EVAL
    list(batches)
    assert watched.reading.phase is Phase.EVAL
