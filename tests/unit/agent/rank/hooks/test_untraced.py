"""torch.compile and pybind11 see through what we have replaced: graph breaks and overrides are as without us."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import AllreduceOptions, HashStore, ProcessGroup
from torch._dynamo import config, reset
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel

from hangwatch_agent.rank.hooks import untraced
from hangwatch_agent.rank.hooks.collectives import CollectivesHook
from hangwatch_agent.rank.hooks.ddp import ForwardHook
from hangwatch_agent.rank.hooks.groups import GroupsHook
from hangwatch_agent.rank.hooks.loader import LoaderHook
from hangwatch_agent.rank.hooks.optimizer import OptimizerHook
from tests.unit.agent.rank.hooks.conftest import Watched

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own


@pytest.fixture
def world() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    reset()


@pytest.fixture
def hooks(watched: Watched) -> Iterator[list[Any]]:
    context = watched.context
    made: list[Any] = [
        *(CollectivesHook(context), ForwardHook(context), LoaderHook(context), OptimizerHook(context)),
        GroupsHook(context, lambda: None),
    ]
    yield made
    for hook in made:
        hook.remove()


def ddp(mode: str | bool, fullgraph: bool) -> Callable[[], None]:
    def run() -> None:
        with config.patch(optimize_ddp=mode):
            model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)))
            compiled = torch.compile(model, backend="eager", fullgraph=fullgraph)
            for _ in range(2):
                compiled(torch.ones(2, 2)).sum().backward()

    return run


def awaited_all_reduce() -> None:
    @torch.compile(backend="eager")
    def run(x: torch.Tensor) -> torch.Tensor:
        work = dist.all_reduce(x, async_op=True)
        doubled = x * 2
        assert work is not None
        work.wait()
        return doubled + x

    run(torch.ones(2))


def functional_all_reduce() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def run(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x + 1

    run(torch.ones(2))


def a_step_of_ones_own() -> None:
    model = DistributedDataParallel(nn.Linear(2, 1))
    optimizer = torch.optim.Adam(model.parameters())

    @torch.compile(backend="eager")
    def step(batch: torch.Tensor) -> None:
        model(batch).sum().backward()
        optimizer.step()

    step(torch.ones(2, 2))


def breaks(run: Callable[[], None]) -> dict[str, int]:
    """Graph breaks by the first words of their reason, and the number of graphs."""
    reset()
    counters.clear()
    run()
    return {"breaks": sum(counters["graph_break"].values()), "graphs": counters["stats"].get("unique_graphs", 0)}


CASES = {
    "the default of DDP": ddp(True, fullgraph=False),
    "the DDP optimizer": ddp("ddp_optimizer", fullgraph=False),
    "no DDP optimizer": ddp(False, fullgraph=False),
    "python_reducer in one graph": ddp("python_reducer", fullgraph=True),
    "python_reducer, eager forward": ddp("python_reducer_without_compiled_forward", fullgraph=False),
    "an all_reduce that is waited for": awaited_all_reduce,
    "a functional collective": functional_all_reduce,
    "a step function": a_step_of_ones_own,
}


@pytest.mark.untraced
@pytest.mark.parametrize("case", CASES)
def test_the_graph_breaks_are_those_without_us(world: None, hooks: list[Any], case: str) -> None:
    plain = breaks(CASES[case])
    assert untraced.hide_ours()
    for hook in hooks:
        hook.install()
    assert breaks(CASES[case]) == plain


def test_compiled_code_is_still_seen(world: None, hooks: list[Any], watched: Watched) -> None:
    untraced.hide_ours()
    for hook in hooks:
        hook.install()
    ddp(True, fullgraph=False)()
    assert watched.reading.progress.forwards == 2
    awaited_all_reduce()
    assert [call.op for call in watched.reading.calls] == ["all_reduce"]


class Overriding(ProcessGroup):
    """One method calls its base, which has no backend here; the others are inherited."""

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # type: ignore[override]
        return super().allreduce(tensors, opts or AllreduceOptions())


class Answering(dist.distributed_c10d.Work):
    def wait(self, timeout: Any = None) -> bool:
        return True


@pytest.mark.parametrize("name", ["allreduce", "broadcast", "reduce_scatter"])
def test_a_python_subclass_of_process_group_calls_its_base_once(hooks: list[Any], name: str) -> None:
    """Plain torch says that there is no backend; a base that called its override again would never come back."""
    arguments = ([torch.ones(1)],) if name != "reduce_scatter" else ([torch.ones(1)], [[torch.ones(1)]])
    with pytest.raises(RuntimeError) as plain:
        getattr(Overriding(0, 1), name)(*arguments)  # type: ignore[call-arg]
    for hook in hooks:
        hook.install()
    with pytest.raises(type(plain.value)) as watched:
        getattr(Overriding(0, 1), name)(*arguments)  # type: ignore[call-arg]
    assert str(watched.value) == str(plain.value)


def test_a_python_subclass_of_work(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.install()
    assert Answering().wait()


def test_no_code_but_ours_is_hidden() -> None:
    """contextlib gives all that it decorates the same code: to hide that would hide it for the program too."""
    from hangwatch_agent.rank import probe

    for module in [module for name, module in sys.modules.items() if name.startswith("hangwatch_agent.")]:
        for code in untraced.codes_of(module):
            assert code.co_filename == module.__file__
    assert list(untraced.codes_of(probe))


def test_readers_of_stacks_see_a_replacement_under_the_name_of_what_it_replaces(hooks: list[Any]) -> None:
    """GIVEN py-spy, which shows the qualified name of a frame's code."""
    hooks[0].install()
    assert vars(ProcessGroup)["monitored_barrier"].__code__.co_qualname == "monitored_barrier"
