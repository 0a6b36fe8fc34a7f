"""The backend `nccl_standin`: torch's own ProcessGroup over an inner gloo group, with calls that queue and return.

torch gives each call of a process group, from Python or from DDP's C++, to an operator of its dispatcher, which hands
it to the group's backend. The operators' kernels are replaced here: so everything above them is torch's own.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import itertools
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .communicator import Call, Communicator, Issued, Run
from .pairs import Pairs
from .recording import answer, dump
from .streams import FOREVER, Device

NAME = "nccl_standin"
NEVER = Communicator.never
MOST_WORKS = 512
LAST_CALLS_S = 0.5  # seconds at the end of the process

device = Device()
# Not a Python function: like `.item()` it leaves no Python frame.
synchronize = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(
    ("cudaStreamSynchronize", device.library), ((1, "stream", None),)
)
_communicators: dict[Any, Communicator] = {}
_stores: dict[Communicator, Any] = {}
_pairs = Pairs(device)
_numbers = itertools.count()
_works: deque[Work] = deque(maxlen=MOST_WORKS)  # torch keeps only the C++ side of them
_blocking = False


class Work(dist.Work):
    """A handle: waiting for it keeps the compute stream, and not the host."""

    def __init__(self, communicator: Communicator, call: Call, outputs: Sequence[Any]) -> None:
        super().__init__()
        self._communicator, self._call, self._outputs = communicator, call, outputs

    def wait(self, timeout: timedelta = NEVER) -> bool:
        self._communicator.wait(self._call)
        if _blocking:
            synchronize()
        return True

    def is_completed(self) -> bool:
        return self._call.completed_ns is not None

    def get_future(self) -> Any:
        """Complete at once: what is computed from it is queued behind the collective."""
        self._communicator.wait(self._call)
        future: Any = torch.futures.Future()
        future.set_result(list(self._outputs))
        return future


class Barrier(Work):
    """NCCL's barrier holds the host until the device is there."""

    wait = synchronize


class Captured(Work):
    """Part of a graph: it runs when that is replayed, and the record does not tell of it."""

    def __init__(self, communicator: Communicator, issued: Issued) -> None:
        dist.Work.__init__(self)
        assert device.captured is not None
        device.captured.append(lambda: communicator.wait(communicator.enqueue(issued, recorded=False)))

    def wait(self, timeout: timedelta = NEVER) -> bool:
        return True

    def is_completed(self) -> bool:
        return False


class Graph:
    """Kernels and collectives that are captured once, and queued all together at each replay."""

    def __init__(self) -> None:
        self._stages: list[Callable[[], None]] = []

    @contextmanager
    def capture(self) -> Iterator[None]:
        device.captured = self._stages
        try:
            yield
        finally:
            device.captured = None

    def replay(self) -> None:
        for stage in self._stages:
            stage()


@contextmanager
def read_back() -> Iterator[None]:
    """Torch reads on the host what it has sent, as while DDP is made: a device wait, which is made at once here."""
    global _blocking
    _blocking = True
    try:
        yield
    finally:
        _blocking = False


def kernel(seconds: float) -> None:
    """Queue a kernel on the compute stream; the host runs on."""
    device.kernel(seconds)


def stuck_kernel() -> None:
    """Queue a kernel that never ends."""
    device.kernel(FOREVER)


def _create(given: Any, options: Any) -> Any:
    inner = dist.ProcessGroupGloo(given.store, given.group_rank, given.group_size, NEVER)
    limit = given.timeout.total_seconds()
    made = Communicator(device, inner, next(_numbers), given.group_id, given.group_rank, limit)
    _communicators[inner], _stores[made] = made, given.store
    return inner


def _of(group: Any) -> Communicator:
    inner = dist.ProcessGroup.unbox(group)._get_backend(torch.device("cpu"))
    return _communicators[inner]


def _queued(group: Any, op: str, inputs: Sequence[Any], outputs: Sequence[Any], run: Run | None, root: int = -1) -> Any:
    return _issued(_of(group), Issued(op, list(inputs), list(outputs), run, root))


def _issued(communicator: Communicator, issued: Issued) -> Any:
    if device.captured is not None:
        work: Work = Captured(communicator, issued)
    else:
        communicator.join()
        call = communicator.enqueue(issued)
        work = (Barrier if issued.op == BARRIER else Work)(communicator, call, issued.outputs)
        if issued.op == BARRIER:
            communicator.wait(call)
    _works.append(work)
    return work.boxed()


BARRIER = "all_reduce_barrier"


def _allreduce(tensors: Any, group: Any, reduce_op: Any, sparse: Any, *rest: Any) -> Any:
    return tensors, _queued(group, "all_reduce", tensors, tensors, lambda inner: inner.allreduce(tensors))


def _broadcast(tensors: Any, group: Any, root: int, *rest: Any) -> Any:
    return tensors, _queued(group, "broadcast", tensors, tensors, lambda inner: inner.broadcast(tensors[0], root), root)


def _allgather(outputs: Any, inputs: Any, group: Any, *rest: Any) -> Any:
    run = lambda inner: inner.allgather(outputs, inputs)  # noqa: E731
    return outputs, _queued(group, "all_gather", inputs, outputs[0], run)


def _allgather_base(output: Any, tensor: Any, group: Any, *rest: Any) -> Any:
    run = lambda inner: inner._allgather_base(output, tensor)  # noqa: E731
    return output, _queued(group, "_all_gather_base", [tensor], [output], run)


def _reduce(tensors: Any, group: Any, reduce_op: Any, root: int, *rest: Any) -> Any:
    return _queued(group, "reduce", tensors, tensors, lambda inner: inner.reduce(tensors[0], root), root)


def _to_peer(group: Any, op: str, tensors: Any, source: int, target: int) -> Any:
    """A send or receive; both ends ask for the same broadcast in their pair."""
    own = _of(group)
    pair = _pairs.of(own, _stores[own], target if own.rank == source else source)
    own.sent += 1
    run = lambda inner: inner.broadcast(tensors[0], pair.ends.index(source))  # noqa: E731
    return _issued(pair, Issued(op, list(tensors), list(tensors), run, peers=(source, target), number=own.sent))


def _send(tensors: Any, group: Any, target: int, *rest: Any) -> Any:
    return _to_peer(group, "send", tensors, _of(group).rank, target)


def _recv(tensors: Any, group: Any, source: int, *rest: Any) -> Any:
    return _to_peer(group, "recv", tensors, source, _of(group).rank)


def _barrier(tensor: Any, group: Any, *rest: Any) -> Any:
    return _queued(group, BARRIER, [torch.ones(1)], [torch.ones(1)], None)


KERNELS: dict[str, Callable[..., Any]] = {
    "allreduce_": _allreduce,
    "broadcast_": _broadcast,
    "allgather_": _allgather,
    "_allgather_base_": _allgather_base,
    "reduce_": _reduce,
    "barrier": _barrier,
    "send": _send,
    "recv_": _recv,
}


def _sequence_number(original: Callable[[Any], int]) -> Callable[[Any], int]:
    def _get_sequence_number_for_group(group: Any) -> int:
        try:
            return _communicators[group._get_backend(torch.device("cpu"))].enqueued
        except (KeyError, RuntimeError):
            return original(group)

    return _get_sequence_number_for_group


def register() -> None:
    """Make `init_process_group("nccl_standin")` possible. Once per process."""
    c10d: Any = importlib.import_module("torch._C._distributed_c10d")
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    group_class: Any = dist.ProcessGroup
    group_class._get_sequence_number_for_group = _sequence_number(group_class._get_sequence_number_for_group)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for name, function in KERNELS.items():
            _library.impl(name, function, "CPU", allow_override=True)
    c10d._register_handler("dump_nccl_trace_json", _answer)
    c10d._dump_nccl_trace_json = _dump  # builds with NCCL have it
    device.library.standin_start()
    atexit.register(_forget)


def _answer(request: Any, response: Any) -> None:
    answer([*_communicators.values(), *_pairs], request, response)


def _dump(*, includeCollectives: bool = True, onlyActive: bool = False) -> bytes:  # noqa: N803 - torch's names
    return dump([*_communicators.values(), *_pairs], entries=includeCollectives).encode()


def _forget() -> None:
    """What torch holds of this must go before the interpreter does.

    gloo's threads return from their last calls into Python a moment after the main thread goes on. They need Python's
    lock for that: one that asks for it when the interpreter ends is ended itself, and takes the process with it.
    """
    time.sleep(LAST_CALLS_S)
    _works.clear()
    _pairs.clear()
    _stores.clear()
    _communicators.clear()
    _library._destroy()


_library = torch.library.Library("c10d", "IMPL")
