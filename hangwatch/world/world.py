"""One simulated job from one seed: its program, its faults, the moment at which it is looked at, and the truth."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hangwatch.model import Snapshot

from .camera import Camera
from .evidence import snapshot
from .faults import Fault, inject
from .lives import Life, lives_of
from .machine import Machine
from .oracle import Truth, can_go_on, finished, fired
from .program import Design, Program, design, programs
from .ranks import Rank


@dataclass(frozen=True)
class Played:
    """A job that has run until it could not go on at once: what an agent sees of it, and what is true."""

    seed: int
    plan: Design
    programs: list[Program]
    faults: list[Fault]
    camera: Camera
    snapshot: Snapshot
    lives: tuple[Life, ...]
    truth: Truth


def play(seed: int) -> Played:
    """The world of this seed."""
    dice = random.Random(seed)
    plan = design(dice)
    lines = programs(plan)
    faults = inject(plan, lines, dice)
    machine = Machine(
        lines, plan.comms(), hosts=plan.hosts, threads=dict(plan.threads), dice=dice, slow_links=plan.slow_links
    )
    machine.run(dice.randint(1, 40 * plan.size) if dice.random() < 0.1 else 1 << 30)
    over = finished(machine)
    if not machine.ready:
        _aftermath(machine, dice)
    camera = _camera(machine, plan, dice)
    seen, lives = snapshot(machine, camera), lives_of(machine, camera)
    known = () if over else fired(machine, faults)  # a job that has ended as it should hangs nowhere
    running = frozenset(thread.rank for thread in machine.ready)
    return Played(seed, plan, lines, faults, camera, seen, lives, Truth(can_go_on(machine), known, over, running))


def _aftermath(machine: Machine, dice: random.Random) -> None:
    """What others do to a job that has failed or hangs: its launcher, and the watchdog of NCCL."""
    failed = [rank for rank in machine.ranks if rank.code not in (None, 0)]
    if failed and dice.random() < 0.5:
        for rank in machine.ranks:
            if rank.living and rank.state == "S":
                machine.clock += 0.2
                machine.kill(rank, -15)
    elif machine.nccl and machine.fired and dice.random() < 0.1:
        for rank in machine.ranks:
            _abort(machine, rank)


def _abort(machine: Machine, rank: Rank) -> None:
    """NCCL's watchdog thread ends a process whose collective has waited for longer than the group's timeout."""
    waiting = [
        call for call in rank.calls if not call.complete and machine.on_device(call) and hasattr(call.act, "via")
    ]
    if not waiting or not rank.living or rank.state != "S":
        return
    call = waiting[0]
    rank.output = (
        f"[rank{rank.number}]:[E1122 04:43:12.1 ProcessGroupNCCL.cpp:685] [Rank {rank.number}] Watchdog caught"
        f" collective operation timeout: WorkNCCL(SeqNum={call.seq}, OpType={call.act.op.replace('_', '').upper()},"
        f" NumelIn={call.act.size}, NumelOut={call.act.size}, Timeout(ms)=600000) ran for 600017 milliseconds before"
        " timing out.\n"
    )
    machine.clock += 600 * (rank.ended_at is None and machine.first_closed is None) + 0.05
    machine.kill(rank, -6)


def _camera(machine: Machine, plan: Design, dice: random.Random) -> Camera:
    """How late the evidence is taken, and what of it is missing."""
    size = len(machine.ranks)

    def few(probability: float) -> tuple[int, ...]:
        if dice.random() >= probability:
            return ()
        return tuple(rank for rank in range(size) if dice.random() < 0.4)

    hosts = {rank.host for rank in machine.ranks}
    silent = dice.choice(sorted(hosts)) if len(hosts) > 1 and dice.random() < 0.1 else None
    source = dice.random() < 0.8
    turned = dice.random() < 0.1
    return Camera(
        still_s=dice.choice((5.0, 5.0, 30.0, 150.0, 900.0)),
        recorder=dice.random() < 0.85,
        native=dice.random() < 0.7,
        calls_kept=12 if dice.random() < 0.1 else 2048,
        steps_kept=6 if turned else 512,
        sampled_twice=dice.random() < 0.95,
        source=source,
        watched=turned and dice.random() < 0.8,
        skips=source and plan.source.skips and plan.style != "trainer",
        no_steps=dice.random() < 0.05,
        no_loaders=dice.random() < 0.1,
        silent=tuple(rank.number for rank in machine.ranks if rank.host == silent),
        no_answer=few(0.1),
        no_stacks=few(0.05),
        stale=few(0.03),
        no_board=few(0.03),
        moved=tuple({thread.rank for thread in machine.ready}),
        way=dice.randrange(3),
    )
