"""Which parameters are told to have no gradient: only those of which others have one."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

from hangwatch_agent.rank.hooks.without_gradients import MOST_TOLD, without_gradients


class Wrapped(nn.Module):
    """The names of DDP's parameters begin with "module."."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.parameters_to_ignore = {"head9.weight"}
        self.module = nn.ModuleDict({f"head{number}": nn.Linear(2, 1, bias=False) for number in range(heads)})
        self.module["frozen"] = nn.Linear(2, 1, bias=False).requires_grad_(False)

    def named_parameters(self, *args: object, **kwargs: object) -> None:  # type: ignore[override]
        raise AssertionError("the user's code was called")


def told(*models: nn.Module) -> list[str]:
    return without_gradients([weakref.ref(model) for model in models])


def run(model: Wrapped, *heads: int) -> None:
    for head in heads:
        model.module[f"head{head}"](torch.ones(1, 2)).sum().backward()


def test_what_had_no_part_in_the_loss_is_named() -> None:
    model = Wrapped()
    run(model, 0)
    assert told(model) == ["head1.weight"]


@pytest.mark.parametrize("heads", [(), (0, 1)], ids=["behind zero_grad", "of a whole backward"])
def test_where_all_have_one_or_none_has_nothing_is_told(heads: tuple[int, ...]) -> None:
    model = Wrapped()
    run(model, *heads)
    assert told(model) == []


def test_of_many_a_few_are_named_and_the_rest_counted() -> None:
    model = Wrapped(MOST_TOLD + 4)
    run(model, 0)
    assert told(model) == [*(f"head{number}.weight" for number in range(1, MOST_TOLD + 1)), "2 more"]


def test_a_model_that_is_gone_has_none() -> None:
    model = Wrapped()
    gone = weakref.ref(model)
    del model
    assert without_gradients([gone]) == without_gradients([]) == []


def test_with_several_models_the_backward_in_question_may_have_been_that_of_another() -> None:
    model = Wrapped()
    run(model, 0)
    assert told(model, Wrapped()) == []


class Asked(nn.Parameter):
    """A parameter of a class of the user's, which torch would ask for every attribute."""

    @classmethod
    def __torch_function__(cls, *args: object, **kwargs: object) -> object:
        raise AssertionError("the user's code was called")


def test_the_users_own_parameters_are_asked_past_their_class() -> None:
    model = Wrapped()
    run(model, 0)
    model.module["head1"]._parameters["weight"] = Asked(torch.ones(1, 2))
    assert told(model) == ["head1.weight"]


def test_during_a_backward_none_is_read() -> None:
    model, seen = Wrapped(), list[list[str]]()

    def _engine_run_backward() -> None:
        seen.append(told(model))

    run(model, 0)
    _engine_run_backward()
    assert seen == [[]]
