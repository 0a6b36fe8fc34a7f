"""Who left the common path: simulated jobs in many shapes, with the culprit on every rank in turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Certainty, Frame, Judgement, Phase, Status
from tests.unit.simulator import SCRIPT, TORCH, Action, Call, Draw, Leave, LoopEnd, Stall, World

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


def plain(steps: int) -> Program:
    """A loop of one's own, without a DataLoader."""
    return [action for _ in range(steps) for action in (Draw(), *GRADIENTS)]


def judged(usual: Program, odd: Program, ranks: int, culprit: int) -> Judgement:
    world = World([odd if rank == culprit else usual for rank in range(ranks)])
    return diagnose(world.run().snapshot())


def blamed(judgement: Judgement) -> list[int | None]:
    return [culprit.rank for culprit in judgement.verdict.culprits]


@everywhere
@pytest.mark.parametrize("buffers", [False, True])
def test_a_rank_with_one_batch_less_ran_out_of_data(ranks: int, culprit: int, buffers: bool) -> None:
    judgement = judged([*epoch(0, 6, buffers=buffers), *END], [*epoch(0, 5, buffers=buffers), *END], ranks, culprit)
    assert judgement.verdict.cause == "uneven-steps"
    assert blamed(judgement) == [culprit]
    assert (judgement.verdict.step.epoch, judgement.verdict.step.batch) == (0, 5)
    assert judgement.status is Status.HUNG


@everywhere
def test_the_first_epoch_that_differed_is_named_when_the_hang_comes_epochs_later(ranks: int, culprit: int) -> None:
    long = [*epoch(0, 4), *epoch(1, 5), *epoch(2, 5), *END]
    short = [*epoch(0, 4), *epoch(1, 4), *epoch(2, 4), *END]
    judgement = judged(long, short, ranks, culprit)
    assert judgement.verdict.cause == "uneven-steps"
    assert blamed(judgement) == [culprit]
    assert (judgement.verdict.step.epoch, judgement.verdict.step.batch) == (1, 4)


@everywhere
def test_a_rank_that_breaks_out_of_the_loop_exited_early(ranks: int, culprit: int) -> None:
    judgement = judged([*epoch(0, 8), *END], [*epoch(0, 4)[:-1], LoopEnd(exhausted=False), *END], ranks, culprit)
    assert judgement.verdict.cause == "early-exit"
    assert blamed(judgement) == [culprit]


@everywhere
def test_a_rank_that_ends_its_program_while_the_others_train_exited_early(ranks: int, culprit: int) -> None:
    judgement = judged([*epoch(0, 8), *epoch(1, 8), *END], [*epoch(0, 8), Leave(Phase.MAIN_DONE)], ranks, culprit)
    assert judgement.verdict.cause == "early-exit"
    assert blamed(judgement) == [culprit]


@everywhere
@pytest.mark.parametrize("later", [0, 2])
def test_a_skipped_backward_is_named_with_its_step_however_late_the_hang(ranks: int, culprit: int, later: int) -> None:
    rest = [action for number in range(1, 1 + later) for action in epoch(number, 8)]
    judgement = judged([*epoch(0, 8), *rest, *END], [*epoch(0, 8, skip=4), *rest, *END], ranks, culprit)
    assert judgement.verdict.cause == "skipped-collective"
    assert blamed(judgement) == [culprit]
    assert (judgement.verdict.step.epoch, judgement.verdict.step.batch) == (0, 4)
    assert "train.py:12" in judgement.verdict.summary


@everywhere
@pytest.mark.parametrize(
    "lone",
    [
        [Call("broadcast", line=30, via="buffers", root=0, function="validate"), Call(line=31, function="validate")],
        [Call("all_gather", line=30, function="validate")],
        [Call("barrier", line=35, function="save")] * 3,
    ],
    ids=["forward", "gather", "barriers"],
)
def test_a_rank_alone_in_a_collective_is_to_blame_whatever_the_numbers_say(
    ranks: int, culprit: int, lone: Program
) -> None:
    usual = [*epoch(0, 8), *epoch(1, 8), *END]
    judgement = judged(usual, [*epoch(0, 8), *lone, *epoch(1, 8), *END], ranks, culprit)
    assert judgement.verdict.cause == "rank-zero-only-collective"
    assert blamed(judgement) == [culprit]


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_accumulation_over_other_numbers_of_batches_is_told_by_the_rhythm(ranks: int) -> None:
    def accumulating(every: int) -> Program:
        steps = ([Draw(0, batch), *(GRADIENTS if (batch + 1) % every == 0 else ())] for batch in range(48))
        return [*(action for step in steps for action in step), LoopEnd(), *END]

    judgement = judged(accumulating(4), accumulating(2), ranks, 1)
    assert judgement.verdict.cause == "gradient-sync-mismatch"
    assert blamed(judgement) == [1]


@everywhere
def test_a_rank_that_leaves_a_plain_loop_early_is_found_without_a_loader(ranks: int, culprit: int) -> None:
    judgement = judged([*plain(9), *END], [*plain(7), *END], ranks, culprit)
    assert blamed(judgement) == [culprit]
    if culprit != 0:  # on rank 0 a barrier behind the loop looks like one behind a rank check
        assert judgement.verdict.cause == "uneven-steps"


@everywhere
def test_a_rank_stuck_in_its_own_code_is_waited_for_until_patience_has_run_out(ranks: int, culprit: int) -> None:
    usual, odd = [*epoch(0, 8), *END], [*epoch(0, 4)[:-1], Stall()]
    world = World([odd if rank == culprit else usual for rank in range(ranks)]).run()
    early, late = diagnose(world.snapshot(still_s=20)), diagnose(world.snapshot(still_s=200))
    for judgement in (early, late):
        assert judgement.verdict.cause == "user-code-blocked"
        assert blamed(judgement) == [culprit]
    assert (early.status, late.status) == (Status.WAITING, Status.HUNG)


@pytest.mark.parametrize("joins", [False, True])
def test_join_is_not_recommended_to_who_has_it(joins: bool) -> None:
    programs = [[*epoch(0, 8 if rank == 1 else 9), *END] for rank in range(3)]
    snapshot = World(programs).run().snapshot()
    join = Frame(f"{TORCH}/distributed/algorithms/join.py", 283, "__exit__")
    stacks = {
        e.rank: tuple(replace(s, frames=(*s.frames[:-1], join, s.frames[-1])) for s in e.stacks) for e in snapshot.ranks
    }
    ranks = tuple(replace(e, stacks=stacks[1]) if joins and e.rank == 1 else e for e in snapshot.ranks)
    verdict = diagnose(replace(snapshot, ranks=ranks)).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("uneven-steps", [1])
    assert ("with Join([model])" in verdict.fix) != joins
    assert ("Join stands in for" in verdict.fix) == joins


def test_calls_that_have_been_made_up_for_are_no_parting() -> None:
    """GIVEN rank 1 with fewer batches, which makes the calls of the others' batches within `Join`
    WHEN ranks 1 and 2 wait in one barrier for rank 0, which writes a checkpoint THEN nobody but rank 0 is spoken of."""
    long = epoch(0, 9, log=False)
    short = [*epoch(0, 6, log=False), *GRADIENTS * 3]
    world = World([[*long, Stall(kind="checkpoint", line=55), *END], [*short, *END], [*long, *END]]).run()
    judgement = diagnose(world.snapshot(still_s=8, patience_s=6))
    assert (judgement.verdict.cause, blamed(judgement)) == ("slow-checkpoint", [0])
    assert judgement.status is not Status.FAILED


@pytest.mark.parametrize("after", [[], [Stall(kind="checkpoint", line=55)]], ids=["ends", "saves"])
def test_steps_that_meet_crosswise_have_not_met_again(after: Program) -> None:
    """GIVEN 7, 8 and 9 batches an epoch: rank 0 is through with both epochs when ranks 1 and 2 stand in the same line
    of different steps THEN the uneven epochs are what is told."""
    programs = [[*epoch(0, n, log=False), *epoch(1, n, log=False)] for n in (7, 8, 9)]
    programs[0] += after or [Leave()]
    verdict = diagnose(World(programs).run().snapshot()).verdict
    assert verdict.cause == "uneven-steps", verdict.summary
    assert {who.rank for who in verdict.culprits} >= {0}


LOSS = Bypass(Frame(SCRIPT, 9, "main"), "if bad(loss): continue")
ERROR = Bypass(Frame(SCRIPT, 16, "main"), "except RuntimeError")
EPOCH = Bypass(Frame(SCRIPT, 3, "main"), "if epoch == 2: continue", inner=False)


@pytest.mark.parametrize(
    ("ways", "place", "told"),
    [
        ((LOSS,), 9, "probably at train.py:9 (`if bad(loss): continue`)"),
        ((LOSS, ERROR), 88, "at train.py:9 (`if bad(loss): continue`) or train.py:16 (`except RuntimeError`)"),
        ((EPOCH,), 88, ""),
        ((), 88, ""),
    ],
)
def test_the_way_past_a_skipped_call_is_told_where_there_is_but_one(
    ways: tuple[Bypass, ...], place: int, told: str
) -> None:
    usual: list[Program] = [[Draw(0, batch), Call(line=12), Call(line=14)] for batch in range(12)]
    odd: list[Program] = [*usual[:6], [Draw(0, 6), Call(line=14)], *usual[7:]]
    programs = [[*(action for step in steps for action in step), LoopEnd(), *END] for steps in (usual, odd, usual)]
    snapshot = World(programs).run().snapshot()
    sites = (CallSite((Frame(SCRIPT, 12, "main"),), ways),)
    judgement = diagnose(replace(snapshot, call_sites=sites))
    assert (judgement.verdict.cause, blamed(judgement)) == ("skipped-collective", [1])
    (culprit,) = judgement.verdict.culprits
    assert culprit.where is not None
    assert culprit.where.line == place
    text = "\n".join((judgement.verdict.summary, *judgement.verdict.evidence))
    assert told in text
    assert ("way" in text or "appearances" in text or "go on without" in text) == bool(told)
    assert "probably" not in text or len(ways) == 1


def test_what_cannot_be_told_is_blamed_on_nobody() -> None:
    # GIVEN two ranks that part in their very first step, so that no past says who is right
    world = World([[Draw(0, 0), Call(line=5), *GRADIENTS], [Draw(0, 0), *GRADIENTS]]).run()

    # THEN the difference is told, and nobody is blamed
    assert blamed(diagnose(world.snapshot())) == []


# ----------------------------------------------------------------------------------- steps that end in optimizer.step()

GRID = {"tp": [(0, 1), (2, 3)], "dp": [(0, 2), (1, 3)]}
FORWARD = (Call("all_reduce", line=18, group="tp"), Call("all_reduce", line=19, group="tp"))
REDUCE = (Call("all_reduce", line=40, group="dp"), Call("all_reduce", line=40, group="dp"))


def turns(number: int, overflow: int = -1) -> Program:
    """A hand-written loop over a grid; on overflow the reduction is left out, and with it the end of the step."""
    program: Program = [Draw()]
    for turn in range(number):
        program += [*FORWARD] if turn == overflow else [*FORWARD, *REDUCE, Draw()]
    return program


@pytest.mark.parametrize("culprit", range(4))
def test_a_rank_that_left_out_its_step_with_the_calls_is_named_and_not_its_partner(culprit: int) -> None:
    programs = [[*turns(20, 8 if rank == culprit else -1), *END] for rank in range(4)]
    judgement = diagnose(World(programs, GRID).run().snapshot())
    assert (judgement.verdict.cause, blamed(judgement)) == ("skipped-collective", [culprit]), judgement.verdict
    assert judgement.verdict.certainty is Certainty.LIKELY
    assert judgement.verdict.step.step == 8
    assert f"Rank {culprit} skipped 2 calls of all_reduce (train.py:40) in step 8" in judgement.verdict.summary
    assert "step 8 of rank" in judgement.verdict.evidence[0]
    assert "in group dp it issued 2 in that step, and 2 turns take 4" in judgement.verdict.evidence


@pytest.mark.parametrize("culprit", range(4))
def test_of_several_groups_only_the_one_that_did_not_come_to_its_own_is_named(culprit: int) -> None:
    """The others met at the skipped call in a group of their own, and are ahead with reason."""
    groups = {"experts": [(0, 2), (1, 3)]}
    turn: Program = [Draw(), Call("all_to_all", line=13, group="experts"), Call("all_reduce", line=32)]
    short: Program = [Draw(), Call("all_reduce", line=32)]
    programs = [[*turn * 9, *(short if rank == culprit else turn), *turn * 5, *END] for rank in range(4)]
    judgement = diagnose(World(programs, groups).run().snapshot())
    assert (judgement.verdict.cause, blamed(judgement)) == ("skipped-collective", [culprit]), judgement.verdict
