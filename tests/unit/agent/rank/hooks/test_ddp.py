from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from hangwatch.model import Phase
from hangwatch_agent.rank import guard
from hangwatch_agent.rank.hooks import ddp as ddp_hook
from hangwatch_agent.rank.hooks.ddp import ForwardHook
from hangwatch_agent.rank.hooks.lifecycle import LifecycleHook
from hangwatch_agent.rank.hooks.optimizer import OptimizerHook
from hangwatch_agent.rank.hooks.plan import of_model
from tests.unit.agent.rank.hooks.conftest import Watched


@pytest.fixture
def hook(watched: Watched) -> Iterator[ForwardHook]:
    hook = ForwardHook(watched.context)
    hook.install()
    yield hook
    hook.remove()


def test_the_very_attributes_come_back(watched: Watched) -> None:
    names = ("_pre_forward", "_inside_ddp_forward", "_post_forward", "forward")
    before = {name: vars(DistributedDataParallel)[name] for name in names}
    model = nn.Linear(1, 1)
    hook = ForwardHook(watched.context)
    hook.install()
    hook.install()
    hook.watch(model)
    hook.watch(model)
    assert len(model._forward_hooks) == 1
    hook.remove()
    hook.remove()
    assert {name: vars(DistributedDataParallel)[name] for name in names} == before
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


class Several(nn.Linear):
    def forward(self, *inputs: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return sum((super(Several, self).forward(each) for each in inputs), torch.zeros(1)) * scale


@pytest.mark.parametrize(("inputs", "named"), [(0, {}), (1, {}), (1, {"scale": 2.0}), (3, {}), (2, {"scale": 3.0})])
def test_inputs_reach_the_model_as_they_were(
    lone_group: None, hook: ForwardHook, inputs: int, named: dict[str, float]
) -> None:
    model, given = Several(2, 1), [torch.rand(1, 2) for _ in range(inputs)]
    assert torch.equal(DistributedDataParallel(model)(*given, **named), model(*given, **named))


def test_a_context_that_others_have_wrapped_is_left_alone(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    original = DistributedDataParallel._inside_ddp_forward
    monkeypatch.setattr(DistributedDataParallel, "_inside_ddp_forward", lambda model: original(model))
    theirs = vars(DistributedDataParallel)["_inside_ddp_forward"]
    hook = ForwardHook(watched.context)
    hook.install()
    assert vars(DistributedDataParallel)["_inside_ddp_forward"] is theirs
    assert watched.reading.problems == ("this torch has another DistributedDataParallel: its forwards are not seen",)


def test_phases_of_a_model_that_was_handed_over(watched: Watched, hook: ForwardHook) -> None:
    model = nn.Linear(1, 1)
    hook.watch(model)
    output = model(torch.ones(1, 1))
    phases = [watched.reading.phase]
    output.sum().backward()
    with torch.no_grad():
        model(torch.ones(1, 1))
    assert [*phases, watched.reading.phase] == [Phase.BACKWARD, Phase.EVAL]
    assert watched.reading.progress.forwards == 2


def test_without_a_loader_forwards_are_steps_of_the_first_model(watched: Watched, hook: ForwardHook) -> None:
    generator, critic = nn.Linear(1, 1), nn.Linear(1, 1)
    hook.watch(generator)
    hook.watch(critic)
    for _ in range(3):
        critic(generator(torch.ones(1, 1)))
    assert watched.reading.progress.step == 2
    with torch.no_grad():
        generator(torch.ones(1, 1))
    assert watched.reading.progress.step == 2


def test_a_watched_model_is_copied_and_pickled_as_without_us(watched: Watched, hook: ForwardHook) -> None:
    model = nn.Linear(1, 1)
    hook.watch(model)
    shadow = copy.deepcopy(model)
    shadow(torch.ones(1, 1))
    pickle.loads(pickle.dumps(model))(torch.ones(1, 1))  # noqa: S301
    assert watched.reading.progress.forwards == 0
    file = io.BytesIO()
    torch.save(model, file)


class Stubborn(nn.Linear):
    """Pickles itself past torch.nn.Module's own way."""

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return (_restored, (dict(self.__dict__),))


def _restored(state: dict[str, Any]) -> nn.Module:
    module = nn.Linear(1, 1)
    module.__dict__.update(state)
    return module


def test_nothing_of_ours_is_in_a_saved_or_copied_model(watched: Watched, hook: ForwardHook) -> None:
    """GIVEN a model with a hook of the user's own WHEN it is pickled or copied THEN byte for byte as without us."""
    model = nn.Sequential(nn.Linear(1, 1))
    plain = pickle.dumps(model)
    hook.watch(model)
    hook.watch(model[0])
    assert pickle.dumps(model) == plain
    assert not copy.deepcopy(model)._forward_hooks
    assert len(model._forward_hooks) == 1
    next_id = RemovableHandle.next_id
    model.register_forward_hook(print)
    assert list(pickle.loads(pickle.dumps(model))._forward_hooks) == [next_id]  # noqa: S301
    assert "__reduce_ex__" in vars(nn.Module)
    hook.remove()
    assert "__reduce_ex__" not in vars(nn.Module)


def test_a_model_that_pickles_itself_needs_no_hangwatch_and_says_nothing(
    watched: Watched, hook: ForwardHook, tmp_path: Path
) -> None:
    model = Stubborn(1, 1)
    hook.watch(model)
    data = pickle.dumps(model)
    assert b"hangwatch" not in data.replace(b"tests.unit.agent.rank.hooks", b"")
    restored = pickle.loads(data)  # noqa: S301
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert restored(torch.ones(1, 1)).shape == (1, 1)
    assert watched.reading.progress.forwards == 0


def test_a_saved_model_is_loaded_elsewhere_in_silence(watched: Watched, hook: ForwardHook, tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    hook.watch(model)
    torch.save(model, tmp_path / "model.pt")
    script = (
        "import logging, sys; logging.basicConfig(level=0); import torch;"
        "torch.load(sys.argv[1], weights_only=False)(torch.ones(1, 1));"
        "assert not [name for name in sys.modules if 'hangwatch' in name]"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model.pt")], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated
def test_a_watched_model_is_scripted_and_traced_as_without_us(watched: Watched, hook: ForwardHook) -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    hook.watch(model)
    hook.watch(model[0])
    assert torch.jit.script(model)(torch.ones(1, 1)).shape == (1, 1)
    assert torch.jit.trace(model, torch.ones(1, 1))(torch.ones(1, 1)).shape == (1, 1)
    before = watched.reading.progress.forwards
    model(torch.ones(1, 1))
    assert watched.reading.progress.forwards > before


def test_torch_compile_of_a_watched_model_in_one_graph(watched: Watched, hook: ForwardHook) -> None:
    model = nn.Linear(1, 1)
    hook.watch(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1, 1)).shape == (1, 1)


def test_what_is_no_module_is_passed_over(watched: Watched, hook: ForwardHook) -> None:
    def double(x: int) -> int:
        return 2 * x

    hook.watch(double)
    hook.watch(None)
    assert double(2) == 4
    assert not vars(double)
    assert watched.reading.progress.forwards == 0


@pytest.fixture
def optimizer_hook(watched: Watched) -> Iterator[OptimizerHook]:
    hook = OptimizerHook(watched.context)
    hook.install()
    yield hook
    hook.remove()


def test_optimizer_steps_end_the_steps_where_nothing_begins_them(
    watched: Watched, optimizer_hook: OptimizerHook
) -> None:
    first, second = (torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1) for _ in range(2))
    assert watched.reading.progress.step == -1
    for ended in range(3):
        first.step()
        second.step()
        progress = watched.reading.progress
        assert (progress.optimizer_steps, progress.step) == (2 * (ended + 1), ended + 1)
    assert watched.reading.phase is Phase.OPTIMIZER
    assert [(entry.step, entry.optimizer_steps) for entry in watched.reading.steps] == [(1, 1), (2, 3), (3, 5)]


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_tick_names_the_same_steps_at_either_end_of_a_loop_with_an_optimizer(
    watched: Watched, optimizer_hook: OptimizerHook, *, at_the_end: bool
) -> None:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    steps, named = watched.context.steps, []
    for _ in range(4):
        if not at_the_end:
            steps.tick()
        named.append(watched.reading.progress.step)
        optimizer.step()
        if at_the_end:
            steps.tick()
    assert named == ([-1, 1, 2, 3] if at_the_end else [0, 1, 2, 3])


def test_a_forward_takes_over_the_step_that_an_optimizer_began(
    watched: Watched, hook: ForwardHook, optimizer_hook: OptimizerHook, lone_group: None
) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()  # warms up
    wrapped, named = DistributedDataParallel(model), []
    for _ in range(3):
        wrapped(torch.ones(1, 2)).sum().backward()
        named.append(watched.reading.progress.step)
        optimizer.step()
    assert named == [1, 2, 3]


def test_a_framework_takes_over_the_step_that_an_optimizer_began(
    watched: Watched, optimizer_hook: OptimizerHook
) -> None:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    for batch in range(2):
        optimizer.step()
        watched.context.steps.named(0, batch + 1)
    assert watched.steps == [(1, 0, 1), (2, 0, 2)]


def test_the_optimizer_hook_goes_as_it_came(watched: Watched) -> None:
    from torch.optim import optimizer

    before = dict(optimizer._global_optimizer_post_hooks)
    hook = OptimizerHook(watched.context)
    hook.install()
    hook.install()
    assert len(optimizer._global_optimizer_post_hooks) == len(before) + 1
    hook.remove()
    hook.remove()
    assert dict(optimizer._global_optimizer_post_hooks) == before


@pytest.mark.filterwarnings("ignore")  # torch's own
def test_torch_compile_of_an_optimizer_step(watched: Watched, optimizer_hook: OptimizerHook) -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)

    @torch.compile(backend="eager")
    def step() -> None:
        optimizer.step()

    weight.grad = torch.ones(1)
    step()
    assert weight.item() == 0.5


def test_the_plan_of_a_model_is_told_at_its_first_forward(
    watched: Watched, hook: ForwardHook, lone_group: None
) -> None:
    model = DistributedDataParallel(nn.Linear(2, 3), find_unused_parameters=True)
    assert watched.reading.identity.plan == {}
    model(torch.ones(1, 2))
    plan = watched.reading.identity.plan
    assert (plan["model"], plan["wraps"], plan["find_unused_parameters"]) == (
        "DistributedDataParallel",
        "Linear",
        "True",
    )
    assert plan["parameters"].startswith("2, ")


def test_the_plan_names_communication_hooks_and_runs_no_code_for_it(
    watched: Watched, hook: ForwardHook, lone_group: None
) -> None:
    class Compressor:
        """A hook that is no function: to ask for its name could run code of the program's."""

        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

    plain, model = DistributedDataParallel(nn.Linear(2, 3)), DistributedDataParallel(nn.Linear(2, 3))
    assert of_model(plain)["comm_hook"] == ""
    hooks: list[Any] = model._comm_hooks
    hooks += [(fp16_compress_hook, None), (Compressor(), None)]
    assert of_model(model)["comm_hook"] == "fp16_compress_hook, Compressor"


def test_each_step_says_in_which_one_before_it_a_forward_was_not_to_be_synchronised(
    watched: Watched, hook: ForwardHook, lone_group: None
) -> None:
    model, other = DistributedDataParallel(nn.Linear(2, 3)), nn.Linear(2, 3)
    hook.watch(other)
    for kept in (True, False, True):
        watched.context.steps.tick()
        with model.no_sync():
            other(torch.ones(1, 2))
            with torch.no_grad():
                model(torch.ones(1, 2))
        with model.no_sync() if kept else nullcontext():
            model(torch.ones(1, 2)).sum().backward()
    watched.context.steps.tick()
    assert [entry.accumulated_step for entry in watched.reading.steps] == [None, 0, 0, 2]
    assert watched.reading.progress.accumulated_step == 2


def test_a_model_that_cannot_be_described_trains_on(
    watched: Watched, hook: ForwardHook, lone_group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(model: object) -> dict[str, str]:
        raise KeyError("no such parameter")

    monkeypatch.setattr(ddp_hook, "of_model", fails)
    guard.raise_swallowed(False)
    model = DistributedDataParallel(nn.Linear(2, 3))
    assert [tuple(model(torch.ones(1, 2)).shape) for _ in range(2)] == [(1, 3), (1, 3)]
    (problem,) = watched.reading.problems
    assert "KeyError: 'no such parameter'" in problem


def test_the_end_of_a_forward_is_seen_where_ddp_reduces_in_python(
    watched: Watched, hook: ForwardHook, lone_group: None
) -> None:
    import torch._dynamo  # takes a second, and no other test here needs it

    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        model = DistributedDataParallel(nn.Linear(2, 1))
    model(torch.ones(1, 2))
    assert watched.reading.phase is Phase.BACKWARD


class Picky(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if batch.sum() < 0:
            raise FloatingPointError("a negative batch")
        output: torch.Tensor = self.inner(batch)
        return output


def test_an_error_that_leaves_a_forward_is_on_the_board_with_its_step_and_the_program_sees_it_as_it_was(
    watched: Watched, hook: ForwardHook, lone_group: None
) -> None:
    lifecycle = LifecycleHook(watched.context, lambda: True)
    lifecycle.install()
    try:
        model = DistributedDataParallel(Picky())
        model(torch.ones(1, 2))
        with pytest.raises(FloatingPointError) as raised:
            model(-torch.ones(1, 2))
        assert not any("hangwatch_agent" in str(entry.path) for entry in raised.traceback)
        model(torch.ones(1, 2))
        (caught,) = watched.reading.caught
        assert (caught.type, caught.message, caught.step, caught.fatal) == (
            "FloatingPointError", "a negative batch", 1, False,
        )  # fmt: skip
        assert caught.frames[0].function == "forward"
        assert __file__ in [frame.file for frame in caught.frames[1:]], "where the program called its model"
        for _ in range(5):
            with pytest.raises(FloatingPointError):
                model(-torch.ones(1, 2))
        assert [each.step for each in watched.reading.caught] == [4, 5, 6, 7]
    finally:
        lifecycle.remove()
