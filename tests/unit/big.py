"""Evidence of very many ranks, made from the simulator's small worlds, for tests of scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangwatch.model import GroupHead, RankEvidence, Snapshot
from tests.unit.simulator import Action, Call, Draw, LoopEnd, World

STEPS = 40
NODE = 8


def training(steps: int, per_step: int = 3) -> list[Action]:
    """An epoch of data parallel training."""
    actions: list[Action] = []
    for batch in range(steps):
        actions += [Draw(0, batch), *(Call(via="gradients", line=12) for _ in range(per_step))]
    return [*actions, LoopEnd(), Call("barrier", line=88)]


def uneven(ranks: int) -> Snapshot:
    """The last rank has a batch less; everybody is in one group, in a node's group and in a group across nodes."""
    return _with_an_odd_one(ranks, training(STEPS), training(STEPS - 1))


def skipped(ranks: int) -> Snapshot:
    """The last rank leaves out a call that the others make in their last but one step."""
    usual = training(STEPS)
    return _with_an_odd_one(ranks, _with_a_call(usual, Call("all_gather", line=40)), usual)


def branches(ranks: int) -> Snapshot:
    """The last rank makes another call than the others in their last but one step."""
    usual = training(STEPS)
    gather, broadcast = Call("all_gather", line=40), Call("broadcast", line=42)
    return _with_an_odd_one(ranks, _with_a_call(usual, gather), _with_a_call(usual, broadcast))


def _with_a_call(program: list[Action], call: Call) -> list[Action]:
    end = max(at for at, action in enumerate(program) if isinstance(action, Draw))
    return [*program[:end], call, *program[end:]]


def _with_an_odd_one(ranks: int, usual: list[Action], odd: list[Action]) -> Snapshot:
    small = World([usual, usual, odd]).run().snapshot()
    first, _, last = small.ranks
    everyone = tuple(range(ranks))
    members = [_moved(last if rank == ranks - 1 else first, rank, everyone) for rank in everyone]
    return replace(small, job=replace(small.job, world_size=ranks), ranks=tuple(members))


def _moved(entry: RankEvidence, rank: int, everyone: tuple[int, ...]) -> RankEvidence:
    """The same evidence as another rank of a larger job."""
    assert entry.reading is not None
    node = everyone[rank // NODE * NODE : rank // NODE * NODE + NODE]
    column = everyone[rank % NODE :: NODE]
    head = replace(entry.collectives.heads[0], members=everyone)
    heads: Sequence[GroupHead] = (
        head,
        GroupHead("tp", node, backend="gloo", issued=7, completed=7),
        GroupHead("dp", column, backend="gloo", issued=9, completed=9),
    )
    host = f"node-{rank // NODE}"
    identity = replace(entry.reading.identity, rank=rank, world_size=len(everyone), pid=10_000 + rank, host=host)
    reading = replace(entry.reading, identity=identity, heads=tuple(heads))
    collectives = replace(entry.collectives, heads=tuple(heads))
    return replace(entry, rank=rank, pid=10_000 + rank, host=host, reading=reading, collectives=collectives)
