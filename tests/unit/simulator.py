"""A small world of ranks that run lists of actions, and the evidence that hangwatch would have of them.

A rank's program is a list of actions. `World.run()` lets ranks act, one at a time in a given order, until none can.
A collective completes on a member when every member has issued the same number of the same group (rooted ones: when
the root has). What a world looks like from outside at any moment is `world.snapshot()`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hangwatch.model import (
    Collective,
    Collectives,
    Frame,
    GroupHead,
    Identity,
    Job,
    Judgement,
    LoaderFacts,
    Phase,
    ProcessFacts,
    Progress,
    RankEvidence,
    Reading,
    Snapshot,
    StepEntry,
    ThreadStack,
)

TORCH = "/venv/lib/python3.12/site-packages/torch"
TRAINER = "/venv/lib/python3.12/site-packages/trainer/strategy.py"
STDLIB = "/usr/lib/python3.12"
SCRIPT = "/home/ann/train.py"
ROOTED = ("broadcast", "scatter")


@dataclass(frozen=True)
class Call:
    """A collective; `via`: "python", "gradients" (in backward), "buffers" or "buckets" (both in DDP's forward)."""

    op: str = "all_reduce"
    line: int = 20
    group: str = "0"
    size: int = 8
    dtype: str = "float32"
    via: str = "python"
    root: int | None = None
    function: str = "main"
    trainer: int = 0  # the line of the trainer's in `function`, which the user's line runs; 0 where there is none
    helper: int = 0  # the line in a function of the user's, which the user's line runs; 0 where there is none


@dataclass(frozen=True)
class Peer:
    """A blocking send or receive."""

    op: str
    peer: int
    line: int = 30
    group: str = "0"


@dataclass(frozen=True)
class Draw:
    """The training loader gives a batch: a step begins. Without an epoch there is no loader."""

    epoch: int | None = None
    batch: int | None = None


@dataclass(frozen=True)
class LoopEnd:
    """The loop over the loader ends: `exhausted`, or left before."""

    exhausted: bool = True


@dataclass(frozen=True)
class Stall:
    """Never returns from the program's own code. `kind`: "socket", "lock", "sleep", "loop", "checkpoint", "compile"."""

    line: int = 40
    kind: str = "socket"
    function: str = "push"


@dataclass(frozen=True)
class Work:
    """Some rounds of computing."""

    rounds: int = 1
    line: int = 15


@dataclass(frozen=True)
class Die:
    code: int | None = -9


@dataclass(frozen=True)
class Stop:
    """The process is stopped."""


@dataclass(frozen=True)
class Leave:
    """The main program ends."""

    phase: Phase = Phase.MAIN_DONE


Action = Call | Peer | Draw | LoopEnd | Stall | Work | Die | Stop | Leave


@dataclass
class _Rank:
    program: Sequence[Action]
    pc: int = 0
    issued: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    completed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    waiting: Call | Peer | None = None
    worked: int = 0
    calls: list[Collective] = field(default_factory=list)
    to_peers: int = 0
    steps: list[StepEntry] = field(default_factory=list)
    epoch: int = -1
    drawn: int = 0
    exhausted: bool = False
    left: bool = False
    per_epoch: list[tuple[int, bool]] = field(default_factory=list)
    state: str = "S"
    code: int | None = None
    phase: Phase = Phase.STEP


class World:
    """Ranks with their programs, and process groups by name ("0" is everybody)."""

    def __init__(
        self,
        programs: Sequence[Sequence[Action]],
        groups: Mapping[str, Sequence[Sequence[int]]] | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.ranks = [_Rank(program) for program in programs]
        self.groups = {name: [tuple(part) for part in parts] for name, parts in (groups or {}).items()}
        self.groups.setdefault("0", [tuple(range(len(programs)))])
        self.random = random.Random(seed)
        self.arrived: dict[tuple[str, tuple[int, ...], int], dict[int, Call]] = defaultdict(dict)
        self.clock = 0.0

    def members(self, rank: int, name: str) -> tuple[int, ...]:
        return next(part for part in self.groups[name] if rank in part)

    # -------------------------------------------------------------- running

    def run(self, rounds: int = 100_000, order: Callable[[int], Iterable[int]] | None = None) -> World:
        """Lets all ranks act until none can, or for so many rounds."""
        for _ in range(rounds):
            ranks = list(order(len(self.ranks)) if order else range(len(self.ranks)))
            if not [rank for rank in ranks if self.act(rank)]:
                break
        return self

    def act(self, rank: int) -> bool:
        """One action of one rank; false where it cannot act."""
        me = self.ranks[rank]
        if me.state in "XTZ" or me.phase is Phase.MAIN_DONE or me.pc >= len(me.program):
            return False
        self.clock += 0.01
        action = me.program[me.pc]
        if isinstance(action, Call):
            return self._collective(rank, me, action)
        if isinstance(action, Peer):
            return self._peer(rank, me, action)
        if isinstance(action, Stall):
            return False
        if isinstance(action, Work) and me.worked < action.rounds:
            me.worked += 1
            return True
        self._at_once(me, action)
        me.pc, me.worked = me.pc + 1, 0
        return True

    def _collective(self, rank: int, me: _Rank, call: Call) -> bool:
        members = self.members(rank, call.group)
        if me.waiting is None:
            me.issued[call.group] += 1
            me.waiting = call
            self.arrived[call.group, members, me.issued[call.group]][rank] = call
            self._record(me, call)
            return True
        if not self.complete(rank):
            return False
        me.completed[call.group] = me.issued[call.group]
        me.waiting = None
        me.pc += 1
        return True

    def complete(self, rank: int) -> bool:
        """The collective that `rank` waits for is complete on it."""
        me = self.ranks[rank]
        call = me.waiting
        assert isinstance(call, Call)
        members = self.members(rank, call.group)
        here = self.arrived[call.group, members, me.issued[call.group]]
        if call.op in ROOTED and call.root is not None:
            return call.root == rank or any(_fits(other, call) and other.root == at for at, other in here.items())
        return len(here) == len(members) and all(_fits(other, call) for other in here.values())

    def _peer(self, rank: int, me: _Rank, action: Peer) -> bool:
        if me.waiting is None:
            me.waiting = action
            self._record_peer(me, action)
            return True
        peer = self.ranks[action.peer]
        other = peer.waiting
        if isinstance(other, Peer) and other.peer == rank and other.op != action.op and other.group == action.group:
            for each in (me, peer):
                each.waiting = None
                each.pc += 1
            return True
        return False

    def _record(self, me: _Rank, call: Call) -> None:
        frames = _caller(call)
        me.calls.append(
            Collective(
                call.group,
                me.issued[call.group],
                "broadcast" if call.via in ("buffers", "buckets") else call.op,
                ((call.size,),),
                (call.dtype,),
                frames=frames,
                thread_name="MainThread",
                step=me.steps[-1].step if me.steps else -1,
                peer=call.root,
                at=self.clock,
            )
        )

    def _record_peer(self, me: _Rank, action: Peer) -> None:
        me.to_peers += 1
        frames = (Frame(SCRIPT, action.line, "main"),)
        step = me.steps[-1].step if me.steps else -1
        me.calls.append(
            Collective(
                action.group,
                me.to_peers,
                action.op,
                peer=action.peer,
                thread_name="MainThread",
                frames=frames,
                step=step,
                at=self.clock,
            )
        )

    def _at_once(self, me: _Rank, action: Action) -> None:
        if isinstance(action, Draw):
            _draw(me, action, self.clock)
        elif isinstance(action, LoopEnd):
            me.exhausted, me.left, me.phase = action.exhausted, not action.exhausted, Phase.BETWEEN
            me.per_epoch.append((me.drawn, action.exhausted))
        elif isinstance(action, Die):
            me.state, me.code = "X", action.code
        elif isinstance(action, Stop):
            me.state = "T"
        elif isinstance(action, Leave):
            me.phase = action.phase

    # -------------------------------------------------------------- what it looks like

    def snapshot(self, *, still_s: float = 5.0, patience_s: float = 120.0, steps_kept: int = 64) -> Snapshot:
        """The evidence of this moment; every rank's second sample agrees with the first, unless it works."""
        ranks = tuple(self.evidence(rank, still_s, patience_s, steps_kept) for rank in range(len(self.ranks)))
        return Snapshot(Job("j", "job", len(self.ranks)), 1000.0, ranks)

    def evidence(self, rank: int, still_s: float, patience_s: float, steps_kept: int = 64) -> RankEvidence:
        me = self.ranks[rank]
        stacks = () if me.state in "XZ" else self.stacks(rank)
        works = self.works(rank)
        heads = tuple(
            GroupHead(
                name,
                self.members(rank, name),
                backend="gloo",
                issued=me.issued[name] or -1,
                completed=me.completed[name] or -1,
            )
            for name, parts in self.groups.items()
            if any(rank in part for part in parts)
        )
        collectives = Collectives(heads, tuple(me.calls[-2000:]), self._open(rank), "flight-recorder")
        return RankEvidence(
            rank,
            host="node-a",
            pid=4000 + rank,
            reading=self._reading(rank, heads, steps_kept),
            process=ProcessFacts(
                4000 + rank,
                me.state,
                exit_code=me.code,
                cpu_delta_s=1.0 if works else 0.0,
                command="python train.py",
                private_wait=me.waiting is not None,
            ),
            stacks=stacks,
            earlier_stacks=stacks,
            collectives=collectives,
            still_s=still_s,
            patience_s=patience_s,
        )

    def works(self, rank: int) -> bool:
        me = self.ranks[rank]
        action = me.program[me.pc] if me.pc < len(me.program) else None
        return me.state == "S" and (isinstance(action, Work) or (isinstance(action, Stall) and action.kind == "loop"))

    def _open(self, rank: int) -> tuple[Collective, ...]:
        me = self.ranks[rank]
        if me.waiting is None or (isinstance(me.waiting, Call) and me.waiting.via != "python"):
            return ()
        return (me.calls[-1],)

    def _reading(self, rank: int, heads: tuple[GroupHead, ...], steps_kept: int) -> Reading:
        me = self.ranks[rank]
        last = me.steps[-1] if me.steps else None
        loaders: tuple[LoaderFacts, ...] = ()
        if me.epoch >= 0:
            counts, exhausted = zip(*me.per_epoch, strict=True) if me.per_epoch else ((), ())
            loaders = (
                LoaderFacts(
                    0,
                    None,
                    epoch=me.epoch,
                    drawn=me.drawn,
                    exhausted=me.exhausted,
                    left=me.left,
                    drawn_per_epoch=counts,
                    exhausted_per_epoch=exhausted,
                ),
            )
        return Reading(
            Identity(rank, len(self.ranks), rank, "node-a", 4000 + rank, 10.0 + rank, "j"),
            taken_at=1000.0,
            phase=me.phase,
            progress=Progress(last.epoch if last else None, last.batch if last else None, last.step if last else -1),
            ticker_at=999.9,
            heads=heads,
            calls=(),
            open_calls=self._open(rank),
            steps=tuple(me.steps[-steps_kept:]),
            loaders=loaders,
        )

    def stacks(self, rank: int) -> tuple[ThreadStack, ...]:
        me = self.ranks[rank]
        return (ThreadStack(1, "MainThread", self._frames(me), main=True),)

    def _frames(self, me: _Rank) -> tuple[Frame, ...]:
        bottom = Frame(SCRIPT, 99, "<module>")
        if me.waiting is not None:
            return (*_waiting(me.waiting), bottom)
        if me.phase is Phase.MAIN_DONE or me.pc >= len(me.program):
            thread = f"{STDLIB}/threading.py"
            return (Frame(thread, 1100, "_wait_for_tstate_lock"), Frame(thread, 1500, "_shutdown"))
        action = me.program[me.pc]
        if isinstance(action, Stall):
            return (*_stalled(action), Frame(SCRIPT, 50, "main"), bottom)
        return (Frame(SCRIPT, getattr(action, "line", 15), "main"), bottom)


def _fits(one: Call, other: Call) -> bool:
    return one.op == other.op and one.size == other.size and one.dtype == other.dtype


def _draw(me: _Rank, action: Draw, clock: float) -> None:
    if action.epoch is not None:
        if action.epoch != me.epoch:
            me.drawn, me.exhausted, me.left = 0, False, False
        me.epoch, me.drawn = action.epoch, me.drawn + 1
    me.phase = Phase.STEP
    step = me.steps[-1].step + 1 if me.steps else 0
    loader = None if action.epoch is None else 0
    me.steps.append(StepEntry(step, action.epoch, action.batch, loader, clock, dict(me.issued)))


def _waiting(call: Call | Peer) -> tuple[Frame, ...]:
    c10d = f"{TORCH}/distributed/distributed_c10d.py"
    if isinstance(call, Peer):
        return (Frame(c10d, 2700, call.op), Frame(SCRIPT, call.line, "main"))
    user = _caller(call)
    if call.via == "gradients":
        return (
            Frame(f"{TORCH}/autograd/graph.py", 829, "_engine_run_backward"),
            Frame(f"{TORCH}/autograd/__init__.py", 354, "backward"),
            Frame(f"{TORCH}/_tensor.py", 630, "Tensor.backward"),
            *user,
        )
    if call.via == "buckets":
        return (Frame(f"{TORCH}/nn/parallel/distributed.py", 1775, "_pre_forward"), *user)
    if call.via == "buffers":
        ddp = f"{TORCH}/nn/parallel/distributed.py"
        names = ("_distributed_broadcast_coalesced", "_sync_module_buffers", "_sync_buffers", "_pre_forward", "forward")
        return (*(Frame(ddp, 2300, f"DistributedDataParallel.{name}") for name in names), *user)
    return (Frame(c10d, 2900, call.op), Frame(f"{TORCH}/distributed/c10d_logger.py", 83, "wrapper"), *user)


def _caller(call: Call) -> tuple[Frame, ...]:
    """The user's line, and inside of it the line of the trainer's, or of the helper's, that makes the call."""
    if call.helper:
        return (Frame(SCRIPT, call.helper, "helper"), Frame(SCRIPT, call.line, call.function))
    if not call.trainer:
        return (Frame(SCRIPT, call.line, call.function),)
    function = "reduce" if call.function == "main" else call.function
    return (Frame(TRAINER, call.trainer, f"Strategy.{function}"), Frame(SCRIPT, call.line, "main"))


def _stalled(action: Stall) -> tuple[Frame, ...]:
    user = Frame(SCRIPT, action.line, action.function)
    if action.kind == "lock":
        return (Frame(f"{STDLIB}/threading.py", 327, "Condition.wait"), user)
    if action.kind == "checkpoint":
        return (Frame(f"{TORCH}/serialization.py", 900, "_save"), Frame(f"{TORCH}/serialization.py", 600, "save"), user)
    if action.kind == "compile":
        return (Frame(f"{TORCH}/_inductor/codecache.py", 100, "compile"), user)
    return (user,)


def blamed_ranks(judgement: Judgement) -> list[int | None]:
    """The ranks of the culprits."""
    return [culprit.rank for culprit in judgement.verdict.culprits]
