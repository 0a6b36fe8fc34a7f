"""Random training programs: what every rank of a healthy job does, as lists of acts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hangwatch.model import Phase

from .acts import (
    Act,
    Collective,
    Destroy,
    DeviceWait,
    Draw,
    End,
    Enter,
    Forward,
    Line,
    LoopEnd,
    Optimizer,
    Peer,
    ThreadPlan,
    Wait,
)
from .calls import BIG, Comm
from .places import STYLES, Source

SIZES = (2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 8, 8, 12, 16)
DUAL = "cpu:gloo,cuda:nccl"
Program = list[Line]


@dataclass
class Design:
    """How a program is made; drawn from the seed."""

    size: int
    backend: str
    style: str
    hosts: tuple[int, ...]
    loader: str  # "iterated", "counted" (exactly len batches, as trainers draw), or "none"
    epochs: int
    batches: int
    buckets: int
    cadence: int
    buffers: bool
    log_every: int
    vote: bool
    log_op: str
    tensor: bool  # a subgroup for each pair of ranks
    one_name: bool  # the subgroups share one name
    pipeline: str  # "", "isend" or "batched"
    item: bool  # the host waits for its device in every step
    two_models: bool
    validate: bool
    save: bool
    stop: bool
    asynchronous: bool
    eager: bool
    garbage: bool
    source: Source = field(default_factory=Source)
    slow_links: bool = False
    threads: dict[int, list[ThreadPlan]] = field(default_factory=dict)
    groups: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)

    @property
    def nccl(self) -> bool:
        return self.backend != "gloo"

    @property
    def world(self) -> range:
        return range(self.size)

    def part(self, rank: int) -> tuple[str, tuple[int, ...]]:
        """The subgroup of a rank."""
        first = rank - rank % 2
        members = tuple(each for each in (first, first + 1) if each < self.size)
        return "tp" if self.one_name else f"tp{first // 2}", members

    def comms(self) -> list[Comm]:
        """The process groups of this program."""
        every_rank = tuple(self.world)
        found = [Comm("0", every_rank, self.backend, self.eager, self.garbage)]
        if self.tensor:
            parts = {self.part(rank) for rank in self.world}
            found += [Comm(name, members, self.backend, self.eager, self.garbage) for name, members in sorted(parts)]
        if self.two_models:
            found.append(Comm("second", every_rank, self.backend, self.eager, self.garbage))
        found += [Comm(name, part, "gloo", self.eager) for name, parts in self.groups.items() for part in parts]
        return found


def design(dice: random.Random, *, large: bool = True) -> Design:
    """A random program's features."""
    size = 64 if large and dice.random() < 0.01 else dice.choice(SIZES)
    backend = dice.choices(("gloo", "nccl", DUAL), (6, 5, 1))[0]
    loader = dice.choices(("iterated", "counted", "none"), (6, 2, 2))[0]
    style = dice.choice(STYLES)

    def chance(probability: float) -> bool:
        return dice.random() < probability

    nodes = dice.choice((1, 1, 2, 4)) if size > 3 else 1
    return Design(
        size,
        backend,
        style,
        tuple(rank * nodes // size for rank in range(size)),
        loader,
        epochs=dice.choice((1, 2, 2, 3)),
        batches=dice.choice((3, 4, 6, 8)) if size < 32 else 3,
        buckets=dice.choice((1, 1, 2, 3)),
        cadence=dice.choice((1, 1, 1, 2, 4)),
        buffers=chance(0.3),
        log_every=dice.choice((0, 0, 1, 1, 2)),
        vote=chance(0.15),
        log_op=dice.choice(("all_reduce", "all_reduce", "all_reduce", "all_gather", "gather", "reduce", "all_to_all")),
        tensor=chance(0.3),
        one_name=chance(0.5),
        pipeline=dice.choice(("", "", "", "", "", "isend", "batched")),
        item=chance(0.7),
        two_models=chance(0.1),
        validate=chance(0.4),
        save=chance(0.4),
        stop=chance(0.2),
        asynchronous=chance(0.2),
        eager=chance(0.5),
        garbage=chance(0.5),
        slow_links=chance(0.06),
        source=Source(style, skips=chance(0.3), leaves=chance(0.3), counted=loader == "none"),
    )


class Writer:
    """Writes the program of one rank."""

    def __init__(self, plan: Design, rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.lines: Program = []
        self.epoch = self.batch = -1

    def add(self, act: Act, role: str = "") -> None:
        self.lines.append(Line(act, role, self.epoch, self.batch))

    def program(self) -> Program:
        for epoch in range(self.plan.epochs):
            self.epoch = epoch
            self._epoch()
        self.epoch = self.batch = -1
        self._end()
        return self.lines

    def _epoch(self) -> None:
        plan = self.plan
        for batch in range(plan.batches):
            self.batch = batch
            self._step()
        self.batch = plan.batches
        if plan.loader != "none":
            self.add(LoopEnd(0, exhausted=plan.loader == "iterated"), "loop-end")
        if plan.validate:
            self._validate()
        if plan.save:
            self.add(Collective("barrier", plan.source.site("after-save")), "after-save")
        if plan.stop:
            self.add(Collective("broadcast", plan.source.site("stop"), size=1, root=0), "stop")

    def _step(self) -> None:
        plan, source = self.plan, self.plan.source
        if plan.loader != "none":
            self.add(Draw(0, self.epoch, self.batch, plan.batches, source.site("loop")), "draw")
        self.add(Forward(step=plan.loader == "none"), "forward")
        if plan.buffers:
            self.add(Collective("broadcast", source.site("forward"), size=4, via="buffers", root=0), "buffers")
        if plan.tensor and len(plan.part(self.rank)[1]) > 1:
            self.add(Collective("all_reduce", source.site("tensor"), plan.part(self.rank)[0], size=64), "tensor")
        if plan.pipeline:
            self._exchange()
        self.add(Enter(Phase.BACKWARD))
        if (self.batch + 1) % plan.cadence == 0:
            self._backward()
        if plan.nccl and plan.item:
            self.add(DeviceWait(source.site("clip")), "item")
        if plan.vote:
            self.add(Collective("all_reduce", source.site("vote"), size=1), "vote")
        if plan.log_every and (self.batch + 1) % plan.log_every == 0:
            self._log()

    def _backward(self) -> None:
        plan, site = self.plan, self.plan.source.site("backward")
        for bucket in range(plan.buckets):
            size = 1024 * (bucket + 1)
            self.add(Collective("all_reduce", site, size=size, via="gradients", handle="grad"), "grad")
        if plan.two_models:
            self.add(Collective("all_reduce", site, "second", size=512, via="gradients", handle="grad"), "grad-second")
        self.add(Wait("grad", site, backward=True), "grad-wait")
        self.add(Optimizer(), "optimizer")

    def _log(self) -> None:
        plan, source = self.plan, self.plan.source
        backend, size = "gloo" if "," in plan.backend else "", BIG if plan.slow_links else 1
        root = 0 if plan.log_op in ("gather", "reduce") else None
        call = Collective(plan.log_op, source.site("log"), size=size, root=root, backend=backend)
        if plan.asynchronous:
            self.add(replace(call, handle="log"), "log")
            self.add(Wait("log", source.site("item")), "log-wait")
        else:
            self.add(call, "log")
        if plan.nccl and plan.item:
            self.add(DeviceWait(source.site("item")), "item")

    def _exchange(self) -> None:
        """Activations go round a ring, as in a pipeline: all calls are asynchronous, then waited for."""
        plan, source = self.plan, self.plan.source
        after, before = (self.rank + 1) % plan.size, (self.rank - 1) % plan.size
        batch = f"{self.epoch}.{self.batch}" if plan.pipeline == "batched" else ""
        size = BIG if plan.slow_links else 32
        self.add(Peer("send", after, source.site("send"), size=size, handle="peer", batch=batch), "send")
        if plan.pipeline == "batched":
            self.add(Peer("recv", before, source.site("recv"), size=size, handle="peer", batch=batch), "recv")
            self.add(Wait("peer", source.site("recv")), "peer-wait")
        else:
            handle = "" if not plan.nccl else "peer"
            self.add(Peer("recv", before, source.site("recv"), size=size, handle=handle, batch="r"), "recv")
            self.add(Wait("peer", source.site("send")), "peer-wait")

    def _validate(self) -> None:
        plan, source = self.plan, self.plan.source
        for batch in range(2):
            self.add(Draw(1, self.epoch, batch, 2, source.site("validate"), training=False), "validate-draw")
            self.add(Forward(grad=False), "validate-forward")
        self.add(LoopEnd(1), "validate-end")
        self.add(Collective("all_gather", source.site("validate-gather"), size=2), "validate-gather")
        if plan.nccl:
            self.add(DeviceWait(source.site("validate-gather")), "item")

    def _end(self) -> None:
        source = self.plan.source
        self.add(Collective("barrier", source.site("final")), "final")
        self.add(Destroy(), "destroy")
        self.add(End(), "end")


def programs(plan: Design) -> list[Program]:
    """What each rank of the healthy job does."""
    return [Writer(plan, rank).program() for rank in plan.world]
