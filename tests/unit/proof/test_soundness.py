"""The proof against a world that knows better: random programs over random groups, with one fault."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.judge import Case, diagnose
from hangwatch.model import GroupHead, RankEvidence, Snapshot, Status
from tests.unit.simulator import Action, Call, Die, Leave, Stall, Stop, Work, World

FAULTS = ("none", "work", "skip", "extra", "swap", "die", "stop", "stall", "leave", "other op", "other root")
OPS = ("all_reduce", "all_gather", "barrier", "broadcast")

Programs = list[list[Action]]


def random_world(seed: int) -> tuple[World, int, str]:
    """A world whose ranks run one random program, except that one of them has one fault."""
    dice = random.Random(seed)
    size = dice.randint(2, 6)
    groups = {"0": [tuple(range(size))], **{name: _parts(dice, size) for name in ("tp", "dp")[: dice.randint(0, 2)]}}
    common = [_call(dice, groups, line) for line in range(10, 10 + dice.randint(3, 14))]
    programs: Programs = [[call for part, call in common if rank in groups[call.group][part]] for rank in range(size)]
    culprit, fault = dice.randrange(size), dice.choice(FAULTS)
    programs[culprit] = _with_fault(programs[culprit], fault, dice)
    return World(programs, groups, seed=seed), culprit, fault


def _parts(dice: random.Random, size: int) -> list[tuple[int, ...]]:
    ranks = list(range(size))
    dice.shuffle(ranks)
    cut = dice.randint(1, size)
    return [tuple(sorted(part)) for part in (ranks[:cut], ranks[cut:]) if part]


def _call(dice: random.Random, groups: dict[str, list[tuple[int, ...]]], line: int) -> tuple[int, Call]:
    name = dice.choice(list(groups))
    part = dice.randrange(len(groups[name]))
    op = dice.choice(OPS)
    root = dice.choice(groups[name][part]) if op == "broadcast" else None
    via = dice.choice(("python", "python", "gradients")) if op == "all_reduce" else "python"
    return part, Call(op, line, name, root=root, via=via)


def _with_fault(program: list[Action], fault: str, dice: random.Random) -> list[Action]:
    at = dice.randrange(len(program) + 1)
    before, after = program[:at], program[at:]
    new: dict[str, list[Action]] = {
        "die": [Die()],
        "stop": [Stop()],
        "stall": [Stall()],
        "leave": [Leave()],
        "extra": [Call(line=77)],
        "work": [Work(5)],
    }
    if fault == "skip":
        return before + after[1:]
    if fault == "swap" and len(after) > 1:
        return [*before, after[1], after[0], *after[2:]]
    if fault == "other op" and after and isinstance(after[0], Call):
        return [*before, replace(after[0], op="reduce_scatter", line=78, root=None), *after[1:]]
    if fault == "other root" and after and isinstance(after[0], Call) and after[0].root is not None:
        return [*before, replace(after[0], root=dice.randrange(2)), *after[1:]]
    return before + new.get(fault, []) + after


def blocked_for_ever(world: World) -> set[int]:
    """Ranks that make no further step however long the world runs; it is run to its end."""
    before = {rank: _place(world, rank) for rank in range(len(world.ranks))}
    world.run()
    return {rank for rank, place in before.items() if _place(world, rank) == place}


def _place(world: World, rank: int) -> tuple[int, bool, int]:
    me = world.ranks[rank]
    return (me.pc, me.waiting is None, me.worked)


@pytest.mark.untraced
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), moments=st.integers(0, 60))
def test_a_rank_that_is_called_deadlocked_never_moves_again(seed: int, moments: int) -> None:
    # GIVEN a world at any moment of its life
    world, _, _ = random_world(seed)
    world.run(rounds=moments, order=lambda size: [world.random.randrange(size)])

    # WHEN the graph calls ranks deadlocked
    deadlocked = Case(world.snapshot()).deadlocked

    # THEN they do not move, whatever happens next
    assert deadlocked <= blocked_for_ever(world)


@pytest.mark.untraced
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_at_the_end_no_innocent_rank_is_proven_guilty(seed: int) -> None:
    # GIVEN a world that has run until nobody can move
    world, culprit, fault = random_world(seed)
    snapshot = world.run().snapshot()

    # WHEN it is judged
    judgement = diagnose(snapshot)

    # THEN a proven verdict names the culprit or nobody
    blamed = {each.rank for each in judgement.verdict.culprits}
    if judgement.verdict.certainty == "proven":
        assert blamed <= {culprit}, (fault, judgement)
    if fault in ("none", "work"):
        assert judgement.status is not Status.HUNG


def _broken(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    return replace(snapshot, ranks=tuple(_broken_rank(rank, dice) for rank in snapshot.ranks if dice.random() < 0.9))


def _broken_rank(entry: RankEvidence, dice: random.Random) -> RankEvidence:
    """Evidence with a part missing, or with a lie in it."""
    kind = dice.choice(("no reading", "no stacks", "no process", "lie", "twice", "ring cut", "clock", "whole", "whole"))
    assert entry.reading is not None
    heads = entry.collectives.heads
    if kind == "no reading":
        return replace(entry, reading=None)
    if kind == "no stacks":
        return replace(entry, stacks=(), earlier_stacks=())
    if kind == "no process":
        return replace(entry, process=None)
    if kind == "ring cut":
        cut = replace(entry.collectives, recent=entry.collectives.recent[-2:])
        return replace(entry, collectives=cut, reading=replace(entry.reading, steps=entry.reading.steps[-2:]))
    if kind == "clock":
        taken_at, ticker_at = entry.reading.taken_at + 3600, entry.reading.ticker_at + 3600
        return replace(entry, reading=replace(entry.reading, taken_at=taken_at, ticker_at=ticker_at))
    if kind == "twice" and heads:
        other = replace(heads[0], members=tuple(reversed(heads[0].members)) if len(heads[0].members) > 1 else (9,))
        return _with_heads(entry, (*heads, other))
    if kind == "lie" and heads:
        lies = tuple(_lie(head, dice) for head in heads)
        return _with_heads(entry, lies)
    return entry


def _lie(head: GroupHead, dice: random.Random) -> GroupHead:
    return replace(head, completed=head.issued + 3, members=head.members if dice.random() < 0.7 else head.members[1:])


def _with_heads(entry: RankEvidence, heads: Sequence[GroupHead]) -> RankEvidence:
    assert entry.reading is not None
    return replace(
        entry,
        collectives=replace(entry.collectives, heads=tuple(heads)),
        reading=replace(entry.reading, heads=tuple(heads)),
    )


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), moments=st.integers(0, 200))
def test_broken_evidence_never_crashes_and_never_proves_what_is_not_so(seed: int, moments: int) -> None:
    # GIVEN any moment of a world, and evidence of it with parts missing and with contradictions
    world, culprit, fault = random_world(seed)
    world.run(rounds=moments, order=lambda size: [world.random.randrange(size)])
    snapshot = _broken(world.snapshot(), random.Random(seed))

    # WHEN it is judged
    judgement = diagnose(snapshot)
    deadlocked = Case(snapshot).deadlocked

    # THEN nothing is proven of a rank that can move
    assert deadlocked <= blocked_for_ever(world)
    if judgement.verdict.certainty == "proven":
        assert {each.rank for each in judgement.verdict.culprits} <= {culprit}, fault
