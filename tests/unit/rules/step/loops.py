"""Simulated jobs with a DataLoader in many shapes, with the culprit on every rank in turn."""

from __future__ import annotations

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Judgement
from tests.unit.simulator import Action, Call, Draw, LoopEnd, World

Program = list[Action]
END: Program = [Call("barrier", line=88)]
GRADIENTS = (Call(via="gradients", line=12), Call(via="gradients", line=12))
BUFFERS = Call("broadcast", line=10, via="buffers", root=0)
SIZES = [(2, 0), (2, 1), (3, 1), (4, 0), (4, 3), (8, 5)]
everywhere = pytest.mark.parametrize(("ranks", "culprit"), SIZES)


def epoch(number: int, batches: int, *, skip: int | None = None, buffers: bool = False, log: bool = True) -> Program:
    """An epoch of DDP; with `skip` the backward of that batch is left out."""
    actions: Program = []
    for batch in range(batches):
        actions += [Draw(number, batch), *([BUFFERS] if buffers else [])]
        actions += [] if batch == skip else GRADIENTS
        actions += [Call("all_reduce", line=14, size=1)] if log else []
    return [*actions, LoopEnd()]


def judged(usual: Program, odd: Program, ranks: int, culprit: int) -> Judgement:
    world = World([odd if rank == culprit else usual for rank in range(ranks)])
    return diagnose(world.run().snapshot())
