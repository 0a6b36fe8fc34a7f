"""Collectives and point-to-point calls issued from Python: noted before they are issued, open until they return.

torch.distributed's functions all go through methods of the class ProcessGroup, whichever way the user imported
them, and wait in `Work.wait`. Both are replaced on the class. What DDP issues from C++ is counted, not listed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from hangwatch_agent.board import layout as b
from hangwatch_agent.rank.group import Group
from hangwatch_agent.rank.hooks.context import Context
from hangwatch_agent.rank.hooks.untraced import is_compiling, replacing
from hangwatch_agent.rank.patch import Patches

C10D = "torch._C._distributed_c10d"
MOST_WORKS = 1024
MOST_TENSORS = 8
TABLE_FOR_SITES = 80 << 10  # bytes of the board's table that shapes may not use


@dataclass(frozen=True)
class Method:
    """A method of ProcessGroup: its name in torch.distributed's words, and which argument holds the tensors.

    `peer` says where the other end stands: "" for nowhere, "root" for a field of the options, else an argument's index.
    """

    op: str
    tensors: int | None = 0
    peer: str | int = ""
    point_to_point: bool = False
    sends: bool = False


METHODS = {
    "allreduce": Method("all_reduce"),
    "allreduce_coalesced": Method("all_reduce"),
    "broadcast": Method("broadcast", peer="root"),
    "allgather": Method("all_gather", 1),
    "_allgather_base": Method("all_gather_into_tensor", 1),
    "all_gather_single": Method("all_gather_into_tensor", 1),
    "allgather_coalesced": Method("all_gather", 1),
    "allgather_into_tensor_coalesced": Method("all_gather_into_tensor", 1),
    "all_gather_single_coalesced": Method("all_gather_into_tensor", 1),
    "gather": Method("gather", 1, peer="root"),
    "scatter": Method("scatter", 0, peer="root"),
    "reduce": Method("reduce", peer="root"),
    "reduce_scatter": Method("reduce_scatter", 1),
    "_reduce_scatter_base": Method("reduce_scatter_tensor", 1),
    "reduce_scatter_single": Method("reduce_scatter_tensor", 1),
    "reduce_scatter_tensor_coalesced": Method("reduce_scatter_tensor", 1),
    "reduce_scatter_single_coalesced": Method("reduce_scatter_tensor", 1),
    "alltoall_base": Method("all_to_all", 1),
    "all_to_all_single": Method("all_to_all", 1),
    "alltoall": Method("all_to_all", 1),
    "barrier": Method("barrier", None),
    "monitored_barrier": Method("monitored_barrier", None),
    "send": Method("send", 0, 1, point_to_point=True, sends=True),
    "recv": Method("recv", 0, 1, point_to_point=True),
    "recv_anysource": Method("recv", 0, point_to_point=True),
}

# c10's names of dtypes, which the flight recorder uses.
DTYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
    "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}  # fmt: skip

Token = tuple[
    int, Group | None, int, tuple[int, int], bool
]  # number, group, sequence before, open call, point-to-point


class CollectivesHook:
    """Replaces the methods of ProcessGroup, and Work.wait."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._patches = Patches()
        self._installed = False
        self._plainly: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._works: dict[int, int] = {}  # id of a Work -> number of its call; no reference, which would hold tensors
        self.reset()

    def reset(self) -> None:
        """Forget what the old board's table held: this process has a new board."""
        self._works.clear()
        self._ops: dict[str, int] = {}
        self._shapes: dict[Any, int] = {}
        self._context.call_paths.forget()
        self._context.waited.clear()

    def install(self) -> None:
        module = sys.modules.get(C10D)
        if self._installed or module is None or not hasattr(module, "ProcessGroup"):
            return
        self._installed = True
        self._plainly = getattr(sys.modules.get("torch._C"), "DisableTorchFunction", nullcontext)
        for name, method in METHODS.items():
            if (original := getattr(module.ProcessGroup, name, None)) is not None:
                self._patches.put(module.ProcessGroup, name, self._issuing(original, name, method))
        self._patches.put(module.Work, "wait", self._waiting(module.Work.wait))

    def remove(self) -> None:
        self._patches.remove()
        self._installed = False

    # ------------------------------------------------------------ replacements

    def _issuing(self, original: Callable[..., Any], name: str, method: Method) -> Callable[..., Any]:
        issue, returned, compiling = self._issue, self._returned, is_compiling()

        @replacing(original, name)
        def issuing(group: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(group, *args, **kwargs)
            token = issue(group, method, args, kwargs)
            work = None
            try:
                work = original(group, *args, **kwargs)
            finally:
                returned(group, token, work)
            return work

        return issuing

    def _waiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        guard, board, works, waited, compiling = (
            self._context.guard, self._context.board, self._works, self._waited, is_compiling(),
        )  # fmt: skip

        @replacing(original, "wait")
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            number = None if compiling() else works.get(id(work))
            if number is None:
                return original(work, *args, **kwargs)
            token = None
            try:
                token = board.enter(number, time.monotonic_ns())
            except Exception as error:
                guard.swallow(error)
            try:
                return original(work, *args, **kwargs)
            finally:
                waited(id(work), number, token)

        return wait

    def _waited(self, identity: int, number: int, token: tuple[int, int] | None) -> None:
        try:
            board = self._context.board
            if token is not None:
                board.leave(token)
            self._works.pop(identity, None)
            entry = b.CALLS_AT + number % b.CALLS * b.CALL_WORDS
            words = board.words
            if words[entry] == number + 1:
                group, seq = words[entry + b.C_GROUP], words[entry + b.C_SEQ]
                self._context.waited[group] = max(self._context.waited.get(group, 0), seq)
        except Exception as error:
            self._context.guard.swallow(error)

    # ------------------------------------------------------------ a call

    def _issue(self, pg: Any, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Token | None:
        try:
            context, now = self._context, time.monotonic_ns()
            group = context.groups.of(pg)
            seq, raw = self._numbered(pg, group, method)
            with self._plainly():  # sizes are asked past the user's tensor subclasses and modes
                shapes, elements = self._described(_tensors(method, args, kwargs))
            peer, tag = _peer(method, args, group), b.NONE
            if method.point_to_point:
                tag = args[-1] if args else b.NONE
                if group is not None and peer != b.NONE:
                    context.groups.count_message(group, peer, method.sends)
            path = context.call_paths.number(sys._getframe(2))  # from torch's function outwards
            number = context.board.call(
                group.index if group else -1, seq, self._op(method.op), shapes, elements, peer,
                tag if type(tag) is int else b.NONE, path, context.steps.step, now,
            )  # fmt: skip
            context.board.words[b.W_MOVED_AT] = now
            return number, group, raw, context.board.enter(number, now), method.point_to_point
        except Exception as error:
            self._context.guard.swallow(error)
            return None

    def _numbered(self, pg: Any, group: Group | None, method: Method) -> tuple[int, int]:
        """The number of this call in its group, from 1; torch's sequence number before it, -1 if it is not needed."""
        if group is None:
            return 0, -1
        if method.point_to_point:
            if method.sends:
                group.sent += 1
            else:
                group.received += 1
            return group.sent + group.received, _sequence(pg, group)
        issued = group.count()
        if group.refused:
            group.issued = issued + 1
        return issued + 1, _sequence(pg, group) if method.op == "monitored_barrier" else -1

    def _returned(self, pg: Any, token: Token | None, work: Any) -> None:
        if token is None:
            return
        try:
            number, group, before, open_call, point_to_point = token
            board = self._context.board
            board.leave(open_call)
            if work is not None:
                if len(self._works) >= MOST_WORKS:
                    self._works.clear()  # handles that no thread waits for
                self._works[id(work)] = number
            if group is not None:
                self._count(pg, group, before, point_to_point)
        except Exception as error:
            self._context.guard.swallow(error)

    def _count(self, pg: Any, group: Group, before: int, point_to_point: bool) -> None:
        if before >= 0:
            after = _sequence(pg, group)
            if not point_to_point:
                group.barriers.append(group.issued)
            group.point_to_point.extend(range(before + 1, after + 1))
            group.uncounted += max(0, after - before)
        words, at = self._context.board.words, b.GROUPS_AT + group.index * b.SLOT_WORDS
        words[at + b.G_ISSUED], words[at + b.G_SENT], words[at + b.G_RECEIVED] = (
            group.count(),
            group.sent,
            group.received,
        )

    # ------------------------------------------------------------ what it is

    def _op(self, op: str) -> int:
        number = self._ops.get(op)
        if number is None:
            number = self._context.board.intern(op)
            if number >= 0:
                self._ops[op] = number
        return number

    def _described(self, tensors: Sequence[Any]) -> tuple[int, int]:
        """The number of the line that says the tensors' sizes and dtypes, and the count of their elements."""
        key = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        elements = sum(tensor.numel() for tensor in tensors)
        number = self._shapes.get(key)
        if number is None:
            board = self._context.board
            if board.table_free < TABLE_FOR_SITES or len(self._shapes) > 4096:
                return -1, elements
            dtypes = sorted({DTYPES.get(name := str(dtype).rpartition(".")[2], name) for _, dtype in key})
            number = board.intern([[list(shape) for shape, _ in key], dtypes])
            if number >= 0:
                self._shapes[key] = number
        return number, elements


def _sequence(pg: Any, group: Group) -> int:
    try:
        return int(group.sequence(pg))
    except Exception:  # a backend without sequence numbers
        return -1


def _tensors(method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    """The tensors that this rank puts in (those it gets, where it only gets): at most eight of them."""
    if method.tensors is None or len(args) <= method.tensors:
        return ()
    found = args[method.tensors]
    if hasattr(found, "shape"):
        return (found,)
    if found and isinstance(found[0], list | tuple):
        found = found[0]
    return [tensor for tensor in found[:MOST_TENSORS] if hasattr(tensor, "shape")]


def _peer(method: Method, args: tuple[Any, ...], group: Group | None) -> int:
    """The global rank at the other end, or of the root."""
    if method.peer == "":
        return b.NONE
    if method.peer == "root":
        rank = getattr(args[-1], "rootRank", None) if args else None
    else:
        rank = args[int(method.peer)] if len(args) > int(method.peer) else None
    if type(rank) is not int:
        return b.NONE
    return group.ranks[rank] if group is not None and 0 <= rank < len(group.ranks) else rank
