"""One communicator's stream: collectives in order, each only where all members have called the same one.

The work is done by an inner gloo group. It would abort a process for a message of another size, and so the members
first tell each other what they are about to do, in a message of one size. Where they differ the collective never
completes, which is what NCCL does at best. Reductions are sums.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .streams import Device, Stage, lock

KEPT = 2000  # entries of the record, as many as torch's ring holds
Run = Callable[[Any], Any]


@dataclass(frozen=True)
class Shape:
    """Sizes and dtype of one tensor. Calls are kept for long, and hold no tensors."""

    sizes: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)


AUTOGRAD = "pt_autograd_0"  # torch's name for the thread that computes gradients on a device


def in_backward() -> bool:
    """Whether autograd's engine is at work: without a device it is in the thread that called backward."""
    return torch._C._current_graph_task_id() != -1


def shapes(tensors: Sequence[torch.Tensor]) -> tuple[Shape, ...]:
    return tuple(Shape(tuple(tensor.shape), str(tensor.dtype).rpartition(".")[2]) for tensor in tensors)


@dataclass(eq=False)
class Call:
    """A collective in a queue. `run` issues it on gloo and gives its work; None for a mere synchronisation."""

    number: int
    op: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    run: Run | None
    root: int
    after: int  # position of the compute stream that it waits for
    thread: int = field(default_factory=threading.get_ident)
    thread_name: str = field(default_factory=lambda: AUTOGRAD if in_backward() else "python")
    created_ns: int = field(default_factory=time.time_ns)
    started_ns: int | None = None
    completed_ns: int | None = None
    waiting: list[Stage] = field(default_factory=list)
    peers: tuple[int, int] | None = None  # source and target, of a send or receive

    @property
    def signature(self) -> int:
        """What has to be the same on all members, as one number."""
        text = f"{self.op if self.peers is None else self.peers} {self.inputs} {self.root}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


@dataclass(frozen=True)
class Issued:
    """What the program asks for. `number` is given for sends and receives, which are counted in their group."""

    op: str
    inputs: list[Any]
    outputs: list[Any]
    run: Run | None
    root: int = -1
    peers: tuple[int, int] | None = None
    number: int | None = None


class Communicator:
    """The stream of one group on this rank. `inner` is gloo's side of it."""

    never = timedelta(days=7)  # gloo's own timeout: a rank that waits for NCCL waits until the watchdog ends it

    def __init__(self, device: Device, inner: Any, number: int, name: str, rank: int, timeout_s: float) -> None:
        self.device = device
        self.inner = inner
        self.number = number
        self.rank = rank
        self.timeout_s = timeout_s
        self.name, self.description = name, "default_pg" if number == 0 else "undefined"
        self.enqueued = self.started = self.completed = 0
        self.sent = 0  # sends and receives, which torch counts by themselves
        self._joined = False
        self.entries: deque[Call] = deque(maxlen=KEPT)
        self._queue: deque[Call] = deque()
        device.followers.append(self.advance)

    def join(self) -> None:
        """The first call makes the communicator: the host polls until all members have come to theirs."""
        if self._joined:
            return
        self._joined, here = True, ctypes.c_long(0)
        meeting = self.inner.barrier()
        meeting.get_future().add_done_callback(lambda future: setattr(here, "value", 1))
        self.device.library.ncclCommInitRankConfig(ctypes.byref(here))

    def enqueue(self, issued: Issued, *, recorded: bool = True) -> Call:
        """Queue a collective behind all that the compute stream has been given so far.

        A replayed graph's calls are not recorded: nothing counts them.
        """
        with lock:
            self.enqueued += recorded
            number = self.enqueued if issued.number is None else issued.number
            inputs, outputs = shapes(issued.inputs), shapes(issued.outputs)
            after = self.device.enqueued
            call = Call(number, issued.op, inputs, outputs, issued.run, issued.root, after, peers=issued.peers)
            if recorded:
                self.entries.append(call)
            self._queue.append(call)
            if len(self._queue) == 1:
                self._expect()
            self.advance()
        return call

    def wait(self, call: Call) -> None:
        """Make the compute stream wait for a collective, as `Work.wait` does on CUDA."""
        with lock:
            stage = Stage()
            stage.done = call.completed_ns is not None
            call.waiting.append(stage)
            self.device.enqueue(stage)

    def advance(self) -> None:
        """Start the first collective if its turn has come."""
        with lock:
            if not self._queue or self._queue[0].started_ns is not None:
                return
            call = self._queue[0]
            if self.device.completed < call.after:
                return
            call.started_ns, self.started = time.time_ns(), call.number
            mine = torch.tensor([call.signature], dtype=torch.int64)
            all_of_them = [torch.empty_like(mine) for _ in range(self.inner.size())]
            meeting = self.inner.allgather([all_of_them], [mine])
            meeting.get_future().add_done_callback(lambda future: self._paired(call, all_of_them, future))

    def _paired(self, call: Call, signatures: list[torch.Tensor], future: Any) -> None:
        if _failed(future) or len({int(each) for each in signatures}) > 1:
            return  # a member is gone, or called something else: it never completes
        if call.run is None:
            self._complete(call)
            return
        work = call.run(self.inner)
        work.get_future().add_done_callback(lambda done: None if _failed(done) else self._complete(call))

    def _complete(self, call: Call) -> None:
        with lock:
            call.completed_ns, self.completed = time.time_ns(), call.number
            call.run = None  # holds tensors
            self._queue.popleft()
            self._expect()
            for stage in call.waiting:
                stage.done = True
            self.device.advance()
            self.advance()

    def _expect(self) -> None:
        """Tell the watchdog what it is to say if the first collective of the queue does not complete in time."""
        expect = self.device.library.standin_expect
        if not self._queue:
            expect(self.number, ctypes.c_double(0.0), None)
        else:
            expect(self.number, ctypes.c_double(self.timeout_s), self._last_words(self._queue[0]).encode())

    def _last_words(self, call: Call) -> str:
        """What torch's watchdog writes before it ends the process; the numbers are those of this moment."""
        stamp = f"[rank{dist_rank()}]:[E{time.strftime('%m%d %H:%M:%S')}.000000000 ProcessGroupNCCL.cpp:685]"
        where = f"[PG ID {self.number} PG GUID {self.name}({self.description}) Rank {self.rank}]"
        limit = int(self.timeout_s * 1000)
        numels = [sum(shape.elements for shape in each) for each in (call.inputs, call.outputs)]
        op = call.op.removesuffix("_barrier").replace("_", "").upper()
        work = (
            f"WorkNCCL(SeqNum={call.number}, OpType={op}, NumelIn={numels[0]}, NumelOut={numels[1]},"
            f" Timeout(ms)={limit})"
        )
        return (
            f"{stamp} [Rank {self.rank}] Watchdog caught collective operation timeout: {work} ran for {limit + 13}"
            f" milliseconds before timing out.\n"
            f"{stamp} {where} Exception (either an error or timeout) detected by watchdog at work: {call.number},"
            f" last enqueued work: {self.enqueued}, last completed work: {self.completed}\n"
            f"{stamp} {where} To avoid data inconsistency, we are taking the entire process down.\n"
        )


def dist_rank() -> int:
    return int(dist.get_rank()) if dist.is_initialized() else 0


def _failed(future: Any) -> bool:
    try:
        future.value()
    except Exception:
        return True
    return False
