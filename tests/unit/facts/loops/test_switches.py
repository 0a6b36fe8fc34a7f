"""Ranks that parted at a decision of a trainer's, and the user's line that sets what it decides by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.loops.switches import led, stopped
from hangwatch.judge import diagnose
from hangwatch.model import Frame, Judgement, RankEvidence, Snapshot, Switch, ThreadStack
from tests.unit.rules.step.decisions import GRADIENTS
from tests.unit.simulator import SCRIPT, Action, Call, Draw, LoopEnd, World

LOOP = "/venv/lib/python3.12/site-packages/trainer/loop.py"
MAIN = (Frame(SCRIPT, 90, "main"), Frame(SCRIPT, 99, "<module>"))
EVALUATE = Switch("should_evaluate", Frame(SCRIPT, 48, "on_step_end"), "if hot", "value", Frame(LOOP, 20, "maybe"), 24)
STOP = Switch("should_stop", Frame(SCRIPT, 44, "on_batch_end"), "if loss < 1", "value", Frame(LOOP, 5, "done"), 6, True)


def below(entry: RankEvidence, *package: Frame) -> RankEvidence:
    """The same rank below a trainer: the frames of torch that it stands in, then the package's, then the program."""

    def moved(stack: ThreadStack) -> ThreadStack:
        inner = tuple(frame for frame in stack.frames if "/torch/" in frame.file or frame.native)
        return replace(stack, frames=(*inner, *package, *MAIN), loop=None, in_loop=None)

    stacks = tuple(map(moved, entry.stacks))
    return replace(entry, stacks=stacks, earlier_stacks=stacks)


def evaluating(who: tuple[int, ...], *switches: Switch, ranks: int = 3) -> Snapshot:
    """`who` are in the all_gather of an evaluation, line 22 of the trainer, the others in the next backward."""
    steps: list[Action] = [action for batch in range(6) for action in (Draw(0, batch), GRADIENTS)]
    programs = [
        [*steps, *([Call("all_gather", line=22)] if rank in who else [Draw(0, 6), GRADIENTS])] for rank in range(ranks)
    ]
    snapshot = World(programs).run().snapshot(still_s=20.0)
    places = {True: (Frame(LOOP, 22, "maybe"), Frame(LOOP, 40, "run")), False: (Frame(LOOP, 60, "run"),)}
    return replace(
        snapshot,
        ranks=tuple(below(each, *places[each.rank in who]) for each in snapshot.ranks),
        switches=switches,
    )


def blamed(judgement: Judgement) -> list[tuple[int | None, int]]:
    return [(who.rank, who.where.line if who.where is not None else 0) for who in judgement.verdict.culprits]


@pytest.mark.parametrize(("who", "odd"), [((1,), [1]), ((0, 2), [1])])
def test_a_trainer_that_the_users_line_led_another_way(who: tuple[int, ...], odd: list[int]) -> None:
    judgement = diagnose(evaluating(who, EVALUATE))
    assert judgement.verdict.cause == "rank-local-decision"
    assert blamed(judgement) == [(rank, 48) for rank in odd]
    assert judgement.verdict.summary.startswith("`should_evaluate` (train.py:48, `if hot`) came out differently")
    assert "`should_evaluate` is asked for at loop.py:20, in maybe" in judgement.verdict.evidence


@pytest.mark.parametrize(
    "switch",
    [
        replace(EVALUATE, asks="alike"),
        replace(EVALUATE, asks="rank"),
        replace(EVALUATE, asked=Frame(LOOP, 30, "maybe"), last=34),
        replace(EVALUATE, leaves=True),
    ],
    ids=["alike on all ranks", "of the rank", "of another call", "an end"],
)
def test_another_switch_says_nothing_of_it(switch: Switch) -> None:
    assert led(Case(evaluating((1,), switch))) is None
    assert diagnose(evaluating((1,), switch)).verdict.culprits[0].where != switch.where


def test_what_the_user_does_there_is_no_decision_of_the_trainers() -> None:
    """GIVEN ranks that all came there WHEN a hook of the user's, or a check of the rank, keeps one of them."""
    snapshot = evaluating((1,), EVALUATE)
    mine = snapshot.ranks[1]
    (stack,) = mine.stacks
    hook = replace(stack, frames=(*stack.frames[:2], Frame(SCRIPT, 55, "on_save"), *stack.frames[2:]))
    for other in (hook, replace(stack, guard="rank")):
        changed = replace(mine, stacks=(other,), earlier_stacks=(other,))
        assert led(Case(replace(snapshot, ranks=(snapshot.ranks[0], changed, snapshot.ranks[2])))) is None


def test_where_all_evaluate_none_was_led_there() -> None:
    """GIVEN that one of them is still on its way THEN no decision differs."""
    snapshot = evaluating((0, 1, 2), EVALUATE)
    assert led(Case(snapshot)) is None
    late = replace(snapshot.ranks[2], stacks=(), earlier_stacks=())
    assert led(Case(replace(snapshot, ranks=(*snapshot.ranks[:2], late)))) is None


def stopping(*switches: Switch) -> Snapshot:
    """Rank 1 left the trainer's loop after six of nine batches and waits behind it; the others are in it."""
    steps: list[Action] = [action for batch in range(6) for action in (Draw(0, batch), GRADIENTS)]
    odd: list[Action] = [LoopEnd(exhausted=False), Call("barrier", line=74)]
    usual: list[Action] = [Draw(0, 6), GRADIENTS]
    programs = [[*steps, *(odd if rank == 1 else usual)] for rank in range(3)]
    snapshot = World(programs).run().snapshot(still_s=20.0)
    places = {True: (), False: (Frame(LOOP, 60, "run"),)}
    return replace(
        snapshot, ranks=tuple(below(each, *places[each.rank == 1]) for each in snapshot.ranks), switches=switches
    )


def test_a_trainer_that_the_users_line_has_stopped() -> None:
    judgement = diagnose(stopping(STOP))
    assert judgement.verdict.cause == "rank-local-decision"
    assert blamed(judgement) == [(1, 44)]
    assert "left the trainer's loop after 6 batches of epoch 0" in judgement.verdict.summary
    assert "`should_stop` (train.py:44, `if loss < 1`) ends it" in judgement.verdict.summary


@pytest.mark.parametrize("switches", [(), (replace(STOP, asks="alike"),), (EVALUATE,)])
def test_without_a_switch_that_ends_it_the_loop_was_left_early(switches: tuple[Switch, ...]) -> None:
    assert stopped(Case(stopping(*switches))) is None
    assert diagnose(stopping(*switches)).verdict.cause == "early-exit"


def test_of_two_switches_none_is_known_to_have_ended_it() -> None:
    assert stopped(Case(stopping(STOP, replace(STOP, name="should_end")))) is None
