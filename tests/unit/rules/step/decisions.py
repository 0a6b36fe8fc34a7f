"""Jobs in which a value of one rank's own decided about a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hangwatch.model import (
    Bypass,
    CallSite,
    Frame,
    Judgement,
    RankEvidence,
    Snapshot,
)
from tests.unit.simulator import SCRIPT, TORCH, Action, Call, Draw, LoopEnd, World

Program = list[Action]
SAVE = 30
GRADIENTS = Call(via="gradients", line=12)
END: Program = [LoopEnd(), Call("barrier", line=88)]
MODULE = Frame(f"{TORCH}/nn/modules/module.py", 1790, "_call_impl")


def way(asks: str, *, of_turn: bool = False, line: int = 28, function: str = "main") -> Bypass:
    text = "if loss < best" if not of_turn else "if bad(loss): continue"
    return Bypass(Frame(SCRIPT, line, function), text, asks=asks, of_turn=of_turn)


def job(ranks: int, alone: tuple[int, ...], ways: tuple[Bypass, ...], *, every_step: bool = False) -> Snapshot:
    """12 batches; in batch 8 the ranks `alone` call at line 30, which all did in batch 2 (or in every batch) only."""

    def program(rank: int) -> Program:
        made: Program = []
        for batch in range(12):
            saves = every_step or batch == 2 or batch == 8
            saves = saves and (batch != 8 or rank in alone)
            made += [Draw(0, batch), GRADIENTS, *([Call("all_gather", line=SAVE)] if saves else [])]
        return [*made, *END]

    snapshot = World([program(rank) for rank in range(ranks)]).run().snapshot()
    return replace(snapshot, call_sites=(CallSite((Frame(SCRIPT, SAVE, "main"),), ways),))


def blamed(judgement: Judgement) -> list[tuple[int | None, int]]:
    return [(who.rank, who.where.line if who.where is not None else 0) for who in judgement.verdict.culprits]


def changed(snapshot: Snapshot, change: Callable[[RankEvidence], RankEvidence]) -> Snapshot:
    return replace(snapshot, ranks=tuple(change(each) for each in snapshot.ranks))
