"""Which faults there are, how often each is drawn, and how they get into the programs of a job."""

from __future__ import annotations

import random
from collections.abc import Callable

from .edits import Fault
from .faulty_calls import FaultyCalls
from .faulty_ranks import FaultyRanks
from .faulty_threads import FaultyThreads
from .program import Design, Program

__all__ = ["Fault", "Injector", "inject"]


class Injector(FaultyCalls, FaultyRanks, FaultyThreads):
    """All faults."""


Recipe = Callable[[Injector], Fault | None]
RECIPES: tuple[tuple[Recipe, int], ...] = (
    (Injector.skipped, 8),
    (Injector.extra, 5),
    (Injector.rank_zero_only, 7),
    (Injector.mismatch, 6),
    (Injector.group_order, 12),
    (Injector.cadence, 4),
    (Injector.uneven, 6),
    (Injector.early_exit, 6),
    (Injector.error, 4),
    (Injector.handled, 3),
    (Injector.died, 4),
    (Injector.stopped, 3),
    (Injector.slow, 10),
    (Injector.loader, 5),
    (Injector.checkpoint, 4),
    (Injector.monitored, 4),
    (Injector.concurrent, 4),
    (Injector.helper, 6),
    (Injector.uploader, 4),
    (Injector.lasting_thread, 3),
    (Injector.peers, 12),
    (Injector.bucket_order, 10),
    (Injector.destroyed_early, 3),
)
_ALL, _WEIGHTS = zip(*RECIPES, strict=True)


def inject(plan: Design, programs: list[Program], dice: random.Random) -> list[Fault]:
    """Changes `programs` by no fault, one or two of them; the faults in the order of their numbers."""
    injector = Injector(plan, programs, dice)
    if dice.random() < 0.1:
        injector.own_group_thread()
    wanted = dice.choices((0, 1, 2), (1, 12, 3))[0]
    for _ in range(8):
        if len(injector.faults) >= wanted:
            break
        dice.choices(_ALL, _WEIGHTS)[0](injector)
    return injector.faults
