"""One rank of a program of the harness: `python rank.py PROGRAM FOLDER`, or `... --spawn` for all of them."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import random
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.utils.data import DataLoader

from tests.harmless import programs

PUBLIC: tuple[tuple[Any, str], ...] = (
    *((dist, name) for name in ("init_process_group", "new_group", "all_reduce", "barrier", "destroy_process_group")),
    *((dist.ProcessGroup, name) for name in ("allreduce", "broadcast", "barrier", "send")),
    *((DataLoader, name) for name in ("__iter__", "__len__")),
    *((torch.nn.parallel.DistributedDataParallel, name) for name in ("forward", "_pre_forward", "_inside_ddp_forward")),
    (torch.nn.Module, "__call__"), (torch.optim.Optimizer, "step"), (dist.distributed_c10d.Work, "wait"),
    (torch.autograd, "backward"), (torch.autograd, "_engine_run_backward"),
)  # fmt: skip
TCP = {"01": "established", "02": "connecting", "06": "waits for its end", "08": "closed by its peer", "0A": "listens"}


def main(name: str, folder: Path) -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    told: list[str] = []
    warnings.showwarning = lambda message, category, *_: told.append(f"{category.__name__}: {message}"[:300])
    torch.manual_seed(3 + rank)
    random.seed(3 + rank)
    dist.init_process_group("gloo")
    programs.attach()
    found = programs.PROGRAMS[name]()
    dist.barrier()
    facts = {"warnings": told, "signatures": signatures(), **everywhere(), **plainly(found)}
    (folder / f"facts-{rank}.json").write_text(json.dumps(facts))
    wait_for_the_others(folder)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that ends by itself, with and without us


def wait_for_the_others(folder: Path) -> None:
    """A rank that ends closes its ends of the connections, which the others would count as gone."""
    deadline = time.monotonic() + 60.0
    others = [folder / f"facts-{rank}.json" for rank in range(dist.get_world_size())]
    while not all(each.exists() for each in others) and time.monotonic() < deadline:
        time.sleep(0.01)


def plainly(found: dict[str, Any]) -> dict[str, Any]:
    model, optimizer = found.pop("model", None), found.pop("optimizer", None)
    if model is not None:
        found["parameters"] = digest(model.state_dict())
        found["gradients"] = digest({name: each.grad for name, each in model.named_parameters()})
    if optimizer is not None:
        found["optimizer"] = digest(optimizer.param_groups[0]["params"])
    return found


def digest(value: Any) -> str:
    """Of tensors in dictionaries and lists, bit by bit."""
    made = hashlib.sha256()
    for name, each in value.items() if isinstance(value, dict) else enumerate(value):
        tensor = getattr(each, "_local_tensor", each)
        made.update(str(name).encode() + (b"" if tensor is None else tensor.detach().numpy().tobytes()))
    return made.hexdigest()


def everywhere() -> dict[str, Any]:
    """What is asked of every program: random numbers, graph breaks, threads, open files, environment, modules."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    ours = ("HANGWATCH_", "PYTHONPATH", "HARMLESS_", "LD_PRELOAD", "CLOCK_AHEAD", "DENY", "TMPDIR")
    return {
        "random": [hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest(), random.random()],
        "graph_breaks": sum(dict(counters.get("graph_break", {})).values()),
        "graphs": dict(counters.get("stats", {})).get("unique_graphs", 0),
        "threads": _threads(),
        "files": sorted(open_files()),
        "environment": sorted(name for name in os.environ if not name.startswith(ours)),
        "hook_ids": torch.utils.hooks.RemovableHandle.next_id,
    }


def _threads() -> list[str]:
    """Python's threads, ours included. Those that feed the queues of workers end in their own time."""
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join(10)
    return sorted(each.name for each in threading.enumerate())


def open_files() -> list[str]:
    found: list[str] = []
    sockets = sockets_by_name()
    for each in Path("/proc/self/fd").iterdir():
        try:
            target = str(each.readlink())
        except OSError:
            continue
        if (
            "hangwatch" not in target
            and "/run/" not in target
            and "/logs/" not in target
            and not target.startswith("/proc")
        ):
            found.append(sockets.get(target) or target.partition(":")[0] if ":[" in target else target)
    return found


def sockets_by_name() -> dict[str, str]:
    """What kind of socket each `socket:[INODE]` of this machine is, and of TCP in which state."""
    found = {}
    for kind, inode in (("tcp", 9), ("tcp6", 9), ("udp", 9), ("unix", 6), ("netlink", 9)):
        for line in Path(f"/proc/self/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            state = TCP.get(fields[3], "") if kind.startswith("tcp") else ""
            found[f"socket:[{fields[inode]}]"] = f"socket {kind.rstrip('6')} {state}".rstrip()
    return found


def signatures() -> dict[str, str]:
    found = {}
    for owner, name in PUBLIC:
        each = getattr(owner, name)
        try:
            signature = str(inspect.signature(each))
        except ValueError:
            signature = ""
        found[f"{owner.__name__}.{name}"] = f"{each.__name__} {each.__module__} {signature} {len(each.__doc__ or '')}"
    return found


def spawned(rank: int, name: str, folder: Path) -> None:
    os.environ["RANK"] = str(rank)
    main(name, folder)


if __name__ == "__main__":
    if "--spawn" in sys.argv:
        spawn(spawned, args=(sys.argv[1], Path(sys.argv[2])), nprocs=2)
    else:
        main(sys.argv[1], Path(sys.argv[2]))
