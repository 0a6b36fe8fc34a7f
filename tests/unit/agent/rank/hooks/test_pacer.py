"""Which of several models or optimizers gives the rank its steps."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from hangwatch_agent.rank.hooks.ddp import ForwardHook
from hangwatch_agent.rank.hooks.optimizer import OptimizerHook
from hangwatch_agent.rank.hooks.pacer import Pacer
from tests.unit.agent.rank.hooks.conftest import Watched


class Thing:
    """A model or an optimizer."""


@pytest.mark.parametrize(
    ("uses", "paced"),
    [
        ("aaaa", "aaaa"),
        ("abababab", "aaaa"),
        ("abbbabbbb", "aa"),
        ("aaaabbbb", "aaaabbb"),
        ("aaabacada", "aaaaaa"),
        ("aaabbbbcccc", "aaabbbccc"),
        ("aaabbbbaaaa", "aaabbbaaa"),
    ],
    ids=["one", "in turn", "more often in each turn", "a successor", "used once now and then", "two", "and back"],
)
def test_the_first_one_paces_until_one_that_came_later_is_used_without_it(uses: str, paced: str) -> None:
    things, pacer = {name: Thing() for name in "abcd"}, Pacer()
    assert "".join(name for name in uses if pacer.paces(things[name])) == paced


class Unequal(Thing):
    """Its author wants no comparisons, and so it has no hash either."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("the user's code was called")


def test_the_users_own_comparison_is_not_called() -> None:
    one, other, pacer = Unequal(), Unequal(), Pacer()
    assert [pacer.paces(each) for each in (one, other) * 3] == [True, False] * 3


def test_a_successor_at_the_address_of_the_first_one_is_another_one() -> None:
    pacer, found = Pacer(), []
    for _ in range(20):
        thing = Thing()
        found.append([pacer.paces(thing) for _ in range(4)])
        del thing
    assert found == [[True] * 4, *[[False, True, True, True]] * 19]


def test_the_model_of_a_second_trial_makes_steps(watched: Watched) -> None:
    hook = ForwardHook(watched.context)
    for _ in range(2):
        model = nn.Linear(1, 1)
        hook.watch(model)
        for _ in range(5):
            model(torch.ones(1, 1))
    hook.remove()
    assert watched.reading.progress.step == 8  # not the first forward of the second model


def test_the_optimizer_of_a_second_trial_ends_steps(watched: Watched) -> None:
    hook = OptimizerHook(watched.context)
    hook.install()
    for _ in range(2):
        optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
        for _ in range(5):
            optimizer.step()
        del optimizer
        gc.collect()
    hook.remove()
    assert watched.reading.progress.step == 9  # the first optimizer step of the second one ended none
