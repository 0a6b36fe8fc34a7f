"""Training programs that are run with and without hangwatch: `python programs.py NAME FOLDER`, once for each rank.

Each function trains a little and returns what must not differ; `facts.json` of the rank holds that and what is common.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import pickle
import pickletools
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

BATCHES = 6
Facts = dict[str, Any]


class Numbers(Dataset[torch.Tensor]):
    """Each sample tells the seed of the worker that made it."""

    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        noise = torch.rand(1).item() + random.random()
        return torch.tensor([float(index), noise, float(torch.initial_seed() % 9973), 1.0])


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.rand(4) for _ in range(2 * BATCHES))


class Restless:
    """A batch sampler whose length draws a random number."""

    def __iter__(self) -> Iterator[list[int]]:
        return ([2 * number, 2 * number + 1] for number in range(BATCHES))

    def __len__(self) -> int:
        return BATCHES + int(torch.rand(1).item())


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 1))


def train(model: nn.Module, loader: Any, optimizer: Any = None, epochs: int = 2) -> Facts:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    seen = []
    for epoch in range(epochs):
        for item in loader:
            sample = item[0] if isinstance(item, list) else item
            seen.append(sample.sum().item())
            optimizer.zero_grad()
            loss = model(sample).square().mean()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}, loss {loss.item():.6f}", flush=True)
    return {"samples": seen, "model": model, "optimizer": optimizer}


def numbers(**options: Any) -> DataLoader[Any]:
    return DataLoader(Numbers(), **({"batch_size": 2} | options))


def tensors() -> DataLoader[Any]:
    data = TensorDataset(torch.arange(16 * BATCHES, dtype=torch.float32).reshape(-1, 4))
    return DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=True))


def ddp(**options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(net(), **options)


# ---------------------------------------------------------------- the programs


def plain_ddp() -> Facts:
    return train(ddp(), tensors())


def own_hooks() -> Facts:
    model, seen = ddp(), []
    model.module.register_forward_hook(lambda *_: seen.append("forward"))
    model.module.register_full_backward_hook(lambda *_: seen.append("backward"))
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    return train(model, tensors()) | {"seen": seen}


def fsdp2() -> Facts:
    from torch.distributed.fsdp import fully_shard

    model = net()
    fully_shard(model)
    return train(model, tensors())


def zero() -> Facts:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = ddp()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    return train(model, tensors(), optimizer)


def lbfgs() -> Facts:
    model, (batch,) = ddp(), next(iter(tensors()))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(batch).square().mean()
        loss.backward()
        return loss

    return {"losses": [float(optimizer.step(closure)) for _ in range(3)], "model": model}


def _compiled(mode: str | bool, *, fullgraph: bool = False) -> Facts:
    from torch._dynamo import config

    with config.patch(optimize_ddp=mode):
        return train(torch.compile(ddp(), backend="aot_eager", fullgraph=fullgraph), tensors())  # type: ignore[arg-type]


def compiled() -> Facts:
    return _compiled(True)


def compiled_python_reducer() -> Facts:
    return _compiled("python_reducer", fullgraph=True)


def compiled_ddp_optimizer() -> Facts:
    return _compiled("ddp_optimizer")


def compiled_collectives() -> Facts:
    @torch.compile(backend="aot_eager")
    def run(x: torch.Tensor) -> torch.Tensor:
        work = dist.all_reduce(x, async_op=True)
        doubled = x.clone() * 0 + 2
        assert work is not None
        work.wait()
        dist.all_reduce(doubled)
        return doubled + x

    return {"found": [run(torch.ones(3)).tolist() for _ in range(3)]}


def shuffled() -> Facts:
    return train(ddp(), numbers(shuffle=True))


def streamed() -> Facts:
    return train(ddp(), DataLoader(Stream(), batch_size=2))


def restless_sampler() -> Facts:
    return train(ddp(), DataLoader(Numbers(), batch_sampler=Restless()))


def persistent_workers() -> Facts:
    return train(ddp(), numbers(num_workers=2, persistent_workers=True, shuffle=True))


def spawned_workers() -> Facts:
    return train(ddp(), numbers(num_workers=1, multiprocessing_context="spawn"), epochs=1)


def forkserver_workers() -> Facts:
    return train(ddp(), numbers(num_workers=1, multiprocessing_context="forkserver"), epochs=1)


def stateful_loader() -> Facts:
    """An epoch that is left after some batches, and resumed from the loader's state: of workers, and without any."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    states, found = [], []
    for workers in (0, 2):
        loader = StatefulDataLoader(
            Numbers(), batch_size=2, shuffle=True, num_workers=workers, snapshot_every_n_steps=1
        )
        found += [batch.tolist() for batch, _ in zip(loader, range(3), strict=False)]
        states.append(loader.state_dict())
        resumed = StatefulDataLoader(Numbers(), batch_size=2, shuffle=True, num_workers=workers)
        resumed.load_state_dict(states[-1])
        found += [batch.tolist() for batch in resumed]
    return train(ddp(), resumed) | {"states": [repr(state) for state in states], "found": found}


class Overriding(dist.ProcessGroup):
    """A process group of the user's: one method calls its base, which has no backend, others are inherited."""

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # type: ignore[override]
        return super().allreduce(tensors, opts or torch._C._distributed_c10d.AllreduceOptions())


def own_process_group() -> Facts:
    group, said = Overriding(dist.get_rank(), 2), []  # type: ignore[call-arg]
    for call in (lambda: group.allreduce([torch.ones(1)]), lambda: group.broadcast([torch.ones(1)])):
        try:
            call()
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}"[:200])
    return train(ddp(), tensors(), epochs=1) | {"said": said}


def groups_and_objects() -> Facts:
    pair, own = dist.new_group([0, 1]), [dist.new_group([rank]) for rank in range(2)]
    tensor = torch.ones(3) * (dist.get_rank() + 1)
    dist.all_reduce(tensor, group=pair)
    dist.broadcast(tensor, dist.get_rank(), group=own[dist.get_rank()])
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": dist.get_rank()})
    if dist.get_rank():
        dist.send(tensor, 0)
    else:
        dist.recv(tensor, 1)
    dist.barrier()
    return {"tensor": tensor.tolist(), "objects": objects}


def accumulated() -> Facts:
    model = ddp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch, (sample,) in enumerate(tensors()):
        with model.no_sync() if batch % 2 else contextlib.nullcontext():
            model(sample).sum().backward()
        if not batch % 2:
            optimizer.step()
            optimizer.zero_grad()
    return {"model": model}


def mixed_precision() -> Facts:
    model = ddp()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("cpu")
    for (sample,) in tensors():
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(sample).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return {"model": model, "scale": scaler.get_scale()}


def resumed() -> Facts:
    first = train(ddp(), tensors(), epochs=1)
    file = io.BytesIO()
    torch.save({"model": first["model"].state_dict(), "optimizer": first["optimizer"].state_dict()}, file)
    file.seek(0)
    saved, model = torch.load(file), ddp()
    model.load_state_dict(saved["model"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.load_state_dict(saved["optimizer"])
    return train(model, tensors(), optimizer, epochs=1)


def copied_and_pickled() -> Facts:
    model = net()
    attach(model)
    model(torch.ones(1, 4))
    scripted = torch.jit.script(model)
    return {
        "pickle": names_in(pickle.dumps(model)),
        "hooks": [len(copy.deepcopy(model)._forward_hooks), len(pickle.loads(pickle.dumps(model))._forward_hooks)],  # noqa: S301
        "scripted": scripted.code,
        "model": model,
    }


def names_in(data: bytes) -> list[str]:
    """The names and strings of a pickle; tensors are saved with their addresses in memory."""
    return [value for _, value, _ in pickletools.genops(data) if isinstance(value, str) and not value.isdigit()]


class Counting(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


def function_mode() -> Facts:
    tensor = torch.ones(3)
    with Counting() as counting:
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
    return {"seen": counting.seen}


def caught_error() -> Facts:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise KeyError(f"no sample {index}")

    try:
        next(iter(DataLoader(Broken())))
    except KeyError:
        # A frame of ours may stand in a traceback that is printed while it is caught; which others must be the same.
        frames = traceback.extract_tb(sys.exc_info()[2])
        return {"frames": [frame.name for frame in frames if "hangwatch" not in frame.filename]}
    return {}


def said_errors() -> Facts:
    """Errors that are caught and said: by a logger that tells its caller, and as warnings, shown and recorded."""
    said, logger = io.StringIO(), logging.getLogger("program")
    handler = logging.StreamHandler(said)
    handler.setFormatter(logging.Formatter("%(levelname)s %(filename)s %(funcName)s %(lineno)d %(message)s"))
    logger.addHandler(handler)
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        for number in range(3):
            try:
                raise ValueError(f"sample {number} is torn")
            except ValueError as error:
                logger.warning("skipped: %s", error)
                logger.exception("as it came", stack_info=True)
                warnings.warn(str(error), RuntimeWarning, stacklevel=1)
    try:
        raise ValueError("the last one")
    except ValueError as error:
        warnings.warn(f"given up: {error}", RuntimeWarning, stacklevel=1)
    warned = [(str(each.message), each.category.__name__, each.lineno) for each in recorded]
    return {"said": said.getvalue(), "warned": warned}


def uncaught_error() -> Facts:
    train(ddp(), tensors(), epochs=1)
    time.sleep(0.5)  # gloo's threads may abort the process, plain or watched, if it ends at once
    raise ValueError("the loss is nan")


def odd_exit() -> Facts:
    sys.exit(7)


PROGRAMS: dict[str, Callable[[], Facts]] = {
    each.__name__: each
    for each in (
        *(plain_ddp, own_hooks, fsdp2, zero, lbfgs, compiled, compiled_python_reducer, compiled_ddp_optimizer),
        *(compiled_collectives, shuffled, streamed, restless_sampler, persistent_workers, spawned_workers),
        *(
            forkserver_workers,
            stateful_loader,
            own_process_group,
            groups_and_objects,
            accumulated,
            mixed_precision,
            resumed,
        ),
        *(copied_and_pickled, function_mode, caught_error, said_errors, uncaught_error, odd_exit),
    )
}

NEEDS = {stateful_loader.__name__: "torchdata"}  # beyond torch


def attach(*watched: Any) -> None:
    """What a user writes, where this run is one with `attach`."""
    import os

    if os.environ.get("HARMLESS_ATTACH") == "1":
        import hangwatch

        hangwatch.attach(*watched)
