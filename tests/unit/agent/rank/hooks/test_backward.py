"""Errors that leave a backward are on the board; the program sees them as without us."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hangwatch_agent.board import layout as b
from hangwatch_agent.rank.hooks.backward import ENGINE, FIRST, BackwardHook
from hangwatch_agent.rank.hooks.lifecycle import LifecycleHook
from tests.unit.agent.foreign_thread import name_this_thread, outermost
from tests.unit.agent.rank.hooks.conftest import Watched


class Refusing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise FloatingPointError("a gradient that is refused")


@pytest.fixture
def hook(watched: Watched) -> Iterator[BackwardHook]:
    lifecycle, hook = LifecycleHook(watched.context, lambda: True), BackwardHook(watched.context)
    lifecycle.install()
    hook.install()
    yield hook
    hook.remove()
    lifecycle.remove()


def loss() -> torch.Tensor:
    output: torch.Tensor = Refusing.apply(torch.ones(2, requires_grad=True))  # type: ignore[no-untyped-call]
    return output.sum()


def engine() -> Any:
    return vars(torch.autograd)[ENGINE]


def lines_of_an_error() -> list[str]:
    with pytest.raises(FloatingPointError) as raised:
        loss().backward()
    return [f"{entry.filename}:{entry.name}" for entry in traceback.extract_tb(raised.value.__traceback__)]


def test_the_very_function_comes_back(watched: Watched) -> None:
    before = engine()
    hook = BackwardHook(watched.context)
    hook.install()
    hook.install()
    assert engine() is not before
    hook.remove()
    hook.remove()
    assert engine() is before


def test_an_error_of_a_backward_is_on_the_board_with_its_step(watched: Watched, hook: BackwardHook) -> None:
    watched.context.steps.tick()
    lines_of_an_error()
    (caught,) = watched.reading.caught
    assert (caught.type, caught.message, caught.step, caught.fatal) == (
        "FloatingPointError", "a gradient that is refused", 0, False,
    )  # fmt: skip
    assert [caught.frames[0].function, caught.frames[1].function] == ["backward", "apply"]
    assert "_engine_run_backward" in [frame.function for frame in caught.frames]
    assert "lines_of_an_error" in [frame.function for frame in caught.frames]


@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "ScheduleInterleaved1F1B"])
def test_an_error_that_leaves_the_step_of_a_pipeline_is_on_the_board(
    watched: Watched, hook: BackwardHook, schedule: str
) -> None:
    """Its loss, say; the module of schedules may be imported after the others."""
    schedules = importlib.import_module("torch.distributed.pipelining.schedules")
    hook.install()
    cls = getattr(schedules, schedule)
    unmade = cls.__new__(cls)
    with pytest.raises(AttributeError) as raised:
        unmade.step()
    (caught,) = watched.reading.caught
    assert caught.type == "AttributeError"
    assert __file__ in [frame.file for frame in caught.frames]
    shown = [entry.filename for entry in traceback.extract_tb(raised.value.__traceback__)]
    assert not any(name.endswith("hooks/backward.py") for name in shown)


def test_its_traceback_is_the_one_without_us(watched: Watched) -> None:
    without = lines_of_an_error()
    hook = BackwardHook(watched.context)
    hook.install()
    try:
        assert lines_of_an_error() == without
    finally:
        hook.remove()


def test_gradients_are_those_without_us(hook: BackwardHook) -> None:
    weight = torch.ones(3, requires_grad=True)
    (gradient,) = torch.autograd.grad((weight * 2).sum(), (weight,))
    (weight * 2).sum().backward()
    assert weight.grad is not None
    assert gradient.tolist() == weight.grad.tolist() == [2.0, 2.0, 2.0]


def test_torch_compile_goes_through_it_as_without_us(watched: Watched) -> None:
    def run() -> tuple[int, list[float]]:
        torch._dynamo.reset()
        graphs: list[Any] = []
        weight = torch.ones(3, requires_grad=True)

        def backend(graph: Any, inputs: Any) -> Any:
            graphs.append(graph)
            return graph.forward

        @torch.compile(backend=backend)
        def step(x: torch.Tensor) -> torch.Tensor:
            (x * weight).sum().backward()
            (gradient,) = torch.autograd.grad((x * weight * weight).sum(), (weight,))
            return gradient

        gradient = step(torch.ones(3))
        assert weight.grad is not None
        return len(graphs), [*gradient.tolist(), *weight.grad.tolist()]

    without = run()
    hook = BackwardHook(watched.context)
    hook.install()
    try:
        assert run() == without
    finally:
        hook.remove()
    assert without[1] == [2.0, 2.0, 2.0, 1.0, 1.0, 1.0]


def published(watched: Watched) -> int | None:
    watched.context.steps.publish()
    return watched.reading.progress.backward_step


def test_the_step_of_the_newest_backward_comes_to_the_board(watched: Watched, hook: BackwardHook) -> None:
    steps = [published(watched)]
    for _ in range(3):
        watched.context.steps.tick()
        torch.ones(2, requires_grad=True).sum().backward()
        steps.append(published(watched))
    watched.context.steps.tick()
    assert [*steps, published(watched)] == [None, 0, 1, 2, 2]


def test_each_step_says_in_which_one_before_it_gradients_were_computed(watched: Watched, hook: BackwardHook) -> None:
    for count in (1, 0, 2):
        watched.context.steps.tick()
        for _ in range(count):
            backward()
    watched.context.steps.tick()
    assert [entry.backward_step for entry in watched.reading.steps] == [None, 0, 0, 2]


def test_a_backward_that_raises_was_called(watched: Watched, hook: BackwardHook) -> None:
    watched.context.steps.tick()
    lines_of_an_error()
    assert published(watched) == 0


def backward() -> None:
    torch.ones(2, requires_grad=True).sum().backward()


def lines(watched: Watched) -> list[str]:
    return [frame.function for frame in watched.reading.backward]


@pytest.mark.parametrize("before", [0, FIRST + 5])
def test_the_path_to_backward_is_known_where_it_is_one(watched: Watched, hook: BackwardHook, before: int) -> None:
    def twice() -> None:
        for _ in range(2):
            backward()

    assert lines(watched) == []
    for _ in range(before + 1):
        twice()
    assert lines(watched)[:5] == [ENGINE, "backward", "backward", "backward", "twice"]
    assert watched.reading.backward[4].file == __file__
    # WHEN another line calls backward too THEN it is not known by which of them a call was issued
    torch.ones(2, requires_grad=True).sum().backward()
    assert lines(watched) == []
    twice()
    assert lines(watched) == []


def test_gradients_that_are_asked_for_are_no_second_path(watched: Watched, hook: BackwardHook) -> None:
    for _ in range(2):
        inputs = torch.ones(2, requires_grad=True)
        torch.autograd.grad(inputs.sum(), inputs)
        backward()
    assert lines(watched)[0] == ENGINE


def test_a_new_board_has_a_path_of_its_own(watched: Watched, hook: BackwardHook) -> None:
    backward()
    watched.context.board.words[b.W_BACKWARD_PATH] = 0
    hook.reset()
    torch.ones(2, requires_grad=True).sum().backward()
    assert lines(watched)[3] == "test_a_new_board_has_a_path_of_its_own"


def path_in_the_engine(watched: Watched, name: str = "pt_autograd_0") -> list[str]:
    """The functions of the call path of what a hook of FSDP issues: torch's own code, which C++ calls in a thread."""
    found: list[int] = []

    def issue() -> None:
        name_this_thread(name)
        found.append(watched.context.call_paths.number(sys._getframe(1)))

    ask: dict[str, Any] = {"ask": issue}
    file = Path(torch.__file__).parent / "distributed/fsdp/_fully_shard/_fsdp_param_group.py"
    exec(compile("def post_backward(_): ask()", str(file), "exec"), ask)  # noqa: S102
    outermost(ask["post_backward"])
    words = watched.context.board.words
    known, words[b.W_BACKWARD_PATH] = words[b.W_BACKWARD_PATH], found[0] + 1
    try:
        return lines(watched)
    finally:
        words[b.W_BACKWARD_PATH] = known


def test_what_hooks_issue_in_autograds_threads_leads_to_a_backward(watched: Watched, hook: BackwardHook) -> None:
    assert path_in_the_engine(watched) == ["post_backward"]
    for _ in range(2):
        backward()
    found = path_in_the_engine(watched)
    assert found[:5] == ["post_backward", ENGINE, "backward", "backward", "backward"]
    assert found[5] == "test_what_hooks_issue_in_autograds_threads_leads_to_a_backward"
    # AND a handler of torch's RPC, which C++ code calls too, is not reached by way of it
    assert path_in_the_engine(watched, "python") == ["post_backward"]
    # WHEN backwards come by a second way THEN none of them is told
    torch.ones(2, requires_grad=True).sum().backward()
    assert path_in_the_engine(watched) == ["post_backward"]
