"""Communicators of the simulated world: which calls of which threads belong together, and when they complete.

On **gloo** a call is paired with those of the same number and kind, and a size that does not fit aborts a process. On
**nccl** calls lie in queues: a call runs when the calls that its stream waits for are complete, and completes when it
runs on every member. NCCL does not compare kinds: calls that do not fit hang, or complete with wrong numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hangwatch.ranks.ledger import family

from .acts import Act, Collective, Line, Monitored, Peer, Slow

FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")
ROOTED = frozenset({*FROM_ROOT, *TO_ROOT})
BIG = 1 << 28  # elements: a call of this size takes long on a job with slow links
SAME_SIZE = frozenset({"all_reduce", "broadcast", "reduce", "all_gather", "gather", "reduce_scatter"})


@dataclass(slots=True, eq=False)
class Thread:
    """One thread of a rank; `left` is the number of calls that it waits for."""

    rank: int
    name: str
    lines: Sequence[Line]
    daemon: bool = True
    main: bool = False
    number: int = 0
    pc: int = 0
    running: bool = True
    left: int = 0
    waits: tuple[Issued, ...] = ()
    slow: Slow | None = None
    timed: Monitored | None = None

    @property
    def act(self) -> Act | None:
        return self.lines[self.pc].act if self.pc < len(self.lines) else None


@dataclass(slots=True, eq=False)
class Issued:
    """A call that a rank has issued: the life of one entry of its flight recorder."""

    rank: int
    seq: int
    act: Collective | Peer
    thread: Thread
    at: float
    step: int
    kind: str
    meeting: Meeting | Route | None = None
    complete: bool = False
    stream: tuple[object, ...] = ()  # of the device, in which calls run one after the other
    deps: int = 0  # calls that its stream waits for
    dependents: list[Issued] = field(default_factory=list)
    waiters: list[Thread] = field(default_factory=list)

    @property
    def running(self) -> bool:
        """The host has issued it, and no earlier work of its stream is left."""
        return self.deps == 0


@dataclass(slots=True, eq=False)
class Comm:
    """A process group as its members share it."""

    name: str
    members: tuple[int, ...]
    backend: str
    eager: bool = False  # a root, or a sender, does not wait for its receivers
    garbage: bool = False  # nccl: calls that do not fit complete, with wrong numbers
    meetings: dict[int, Meeting] = field(default_factory=dict)

    def meeting(self, seq: int) -> Meeting:
        found = self.meetings.get(seq)
        if found is None:
            found = self.meetings[seq] = Meeting(self)
        return found


@dataclass(slots=True, eq=False)
class Meeting:
    """All calls of one number in one group."""

    comm: Comm
    calls: dict[int, Issued] = field(default_factory=dict)
    slow: bool = False  # its data take long to arrive

    def completed(self) -> list[Issued]:
        """The calls that are complete now and were not before; none over a slow link."""
        if self.slow:
            return []
        if len(self.calls) < len(self.comm.members) and not any(call.kind in ROOTED for call in self.calls.values()):
            return []
        running = [call for call in self.calls.values() if not call.complete and call.running]
        return [call for call in running if self._done(call)]

    def _done(self, call: Issued) -> bool:
        comm, act = self.comm, call.act
        root = act.root if isinstance(act, Collective) else None
        if call.kind in FROM_ROOT and root is not None:
            if call.rank != root:
                return self._fits(call, root)
            return comm.eager or all(self._fits(call, other) for other in comm.members)
        if call.kind in TO_ROOT and root is not None and call.rank != root:
            return comm.eager or self._fits(call, root)
        return len(self.calls) == len(comm.members) and all(self._fits(call, other) for other in comm.members)

    def _fits(self, call: Issued, rank: int) -> bool:
        other = self.calls.get(rank)
        if other is None or not other.running:
            return False
        garbage = self.comm.garbage and self.comm.backend != "gloo"  # whose messages carry the kind of operation
        return other is call or garbage or (other.kind == call.kind and not sizes_differ(call, other))

    def misfit(self, call: Issued) -> Issued | None:
        """A call of another size that gloo would match with `call`."""
        if self.comm.backend != "gloo":
            return None
        return next((other for other in self.calls.values() if sizes_differ(call, other)), None)


def sizes_differ(one: Issued, other: Issued) -> bool:
    """Both are of one kind, in which every member must bring the same number of bytes."""
    if one.kind != other.kind or one.kind not in SAME_SIZE:
        return False
    return (one.act.size, _dtype(one)) != (other.act.size, _dtype(other))


def _dtype(call: Issued) -> str:
    return call.act.dtype if isinstance(call.act, Collective) else ""


@dataclass(slots=True, eq=False)
class Route:
    """Point-to-point calls from one rank to another with one tag: matched in the order in which they are issued."""

    eager: bool
    slow: bool = False  # what is matched takes long to arrive
    sends: list[Issued] = field(default_factory=list)
    receives: list[Issued] = field(default_factory=list)

    def completed(self) -> list[Issued]:
        """The calls that are complete now and were not before; none over a slow link."""
        if self.slow:
            return []
        found = [send for send in self.sends if self.eager and send.running and not send.complete]
        for send, receive in zip(self.sends, self.receives, strict=False):
            if send.running and receive.running:
                found += [call for call in (send, receive) if not call.complete and call not in found]
        return found


def kind_of(act: Collective | Peer) -> str:
    return family(act.op)
