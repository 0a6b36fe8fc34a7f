"""`skipped-collective`: one rank skipped a collective."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Certainty, Frame
from tests.unit.rules.step.decisions import SAVE, way
from tests.unit.rules.step.loops import END, GRADIENTS, Program, epoch, everywhere, judged
from tests.unit.rules.step.worlds import STEP, world
from tests.unit.simulator import SCRIPT, Call, Draw, LoopEnd, Stall, World, blamed_ranks


@everywhere
@pytest.mark.parametrize("later", [0, 2])
def test_a_skipped_backward_is_named_with_its_step_however_late_the_hang(ranks: int, culprit: int, later: int) -> None:
    rest = [action for number in range(1, 1 + later) for action in epoch(number, 8)]
    judgement = judged([*epoch(0, 8), *rest, *END], [*epoch(0, 8, skip=4), *rest, *END], ranks, culprit)
    assert judgement.verdict.cause == "skipped-collective"
    assert blamed_ranks(judgement) == [culprit]
    assert (judgement.verdict.step.epoch, judgement.verdict.step.batch) == (0, 4)
    assert "train.py:12" in judgement.verdict.summary


LOSS = Bypass(Frame(SCRIPT, 9, "main"), "if bad(loss): continue")
ERROR = Bypass(Frame(SCRIPT, 16, "main"), "except RuntimeError")
EPOCH = Bypass(Frame(SCRIPT, 3, "main"), "if epoch == 2: continue", inner=False)
EVERY = Bypass(Frame(SCRIPT, 10, "main"), "if step % every == 0", asks="alike")
FUSED = Bypass(Frame(SCRIPT, 10, "main"), "if fused", asks="alike")


@pytest.mark.parametrize(
    ("ways", "place", "told"),
    [
        ((LOSS,), 9, "probably at train.py:9 (`if bad(loss): continue`)"),
        ((LOSS, ERROR), 88, "at train.py:9 (`if bad(loss): continue`) or train.py:16 (`except RuntimeError`)"),
        ((EPOCH,), 88, ""),
        ((EVERY, ERROR), 16, "probably at train.py:16 (`except RuntimeError`)"),
        ((FUSED, EVERY), 88, ""),
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
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [1])
    (culprit,) = judgement.verdict.culprits
    assert culprit.where is not None
    assert culprit.where.line == place
    text = "\n".join((judgement.verdict.summary, *judgement.verdict.evidence))
    assert told in text
    assert ("way" in text or "appearances" in text or "go on without" in text) == bool(told)
    assert "probably" not in text or len([way for way in ways if way.asks != "alike"]) == 1


def test_a_setting_that_alone_leads_past_a_skipped_call_differs_by_rank() -> None:
    usual: list[Program] = [[Draw(0, batch), Call(line=12), Call(line=14)] for batch in range(12)]
    odd: list[Program] = [*usual[:6], [Draw(0, 6), Call(line=14)], *usual[7:]]
    programs = [[*(action for step in steps for action in step), LoopEnd(), *END] for steps in (usual, odd, usual)]
    sites = (CallSite((Frame(SCRIPT, 12, "main"),), (FUSED,)),)
    verdict = diagnose(replace(World(programs).run().snapshot(), call_sites=sites)).verdict
    assert [(who.rank, who.where and who.where.line) for who in verdict.culprits] == [(1, 10)]
    assert "past which only `if fused` (train.py:10) leads" in verdict.summary
    assert verdict.fix.startswith("give what that condition asks for one value on all ranks")


def test_a_call_in_a_function_that_remembers_its_results_has_a_fix_of_its_own() -> None:
    usual: list[Program] = [[Draw(0, batch), Call(line=12), Call(line=14)] for batch in range(12)]
    odd: list[Program] = [*usual[:6], [Draw(0, 6), Call(line=14)], *usual[7:]]
    programs = [[*(action for step in steps for action in step), LoopEnd(), *END] for steps in (usual, odd, usual)]
    cache = Bypass(Frame(SCRIPT, 8, "scale"), "@lru_cache", asks="value")
    sites = (CallSite((Frame(SCRIPT, 12, "main"),), (cache,)),)
    verdict = diagnose(replace(World(programs).run().snapshot(), call_sites=sites)).verdict
    assert [(who.rank, who.where and who.where.line) for who in verdict.culprits] == [(1, 8)]
    assert verdict.fix.startswith("make no collective in a function whose results are remembered")


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
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [culprit]), judgement.verdict
    assert judgement.verdict.certainty is Certainty.LIKELY
    assert judgement.verdict.step.step == 8
    assert f"Rank {culprit} skipped 2 calls of all_reduce (train.py:40) in step 8" in judgement.verdict.summary
    assert "step 8 of rank" in judgement.verdict.evidence[0]
    assert "in group dp it issued 2 in that step, and 2 turns take 4" in judgement.verdict.evidence


def test_a_step_that_is_as_long_on_the_others_holds_no_further_turns() -> None:
    # GIVEN a job that evaluates with three calls of all ranks within a step, and a rank that later repeats a turn
    turn = (*FORWARD, Call("all_reduce", line=40), Draw())
    evaluation = tuple(Call("all_reduce", line=line) for line in (50, 51))
    once = [Draw(), *turn * 3, *evaluation, *turn * 5, *evaluation, *END]
    again = [Draw(), *turn * 3, *evaluation, *turn * 6, *evaluation, *END]
    programs = [again if rank == 2 else once for rank in range(4)]
    # THEN its partner in the other group, which waits for the same, has skipped nothing
    judgement = diagnose(World(programs, {"tp": [(0, 1), (2, 3)]}).run().snapshot())
    assert "turns of its loop" not in "".join(judgement.verdict.evidence)
    assert 3 not in blamed_ranks(judgement)


@pytest.mark.parametrize("culprit", range(4))
def test_of_several_groups_only_the_one_that_did_not_come_to_its_own_is_named(culprit: int) -> None:
    """The others met at the skipped call in a group of their own, and are ahead with reason."""
    groups = {"experts": [(0, 2), (1, 3)]}
    turn: Program = [Draw(), Call("all_to_all", line=13, group="experts"), Call("all_reduce", line=32)]
    short: Program = [Draw(), Call("all_reduce", line=32)]
    programs = [[*turn * 9, *(short if rank == culprit else turn), *turn * 5, *END] for rank in range(4)]
    judgement = diagnose(World(programs, groups).run().snapshot())
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [culprit]), judgement.verdict


@pytest.mark.parametrize("stuck", range(4))
def test_ranks_that_made_the_call_in_a_group_of_their_own_are_not_said_to_have_skipped_it(stuck: int) -> None:
    turn: Program = [Draw(), Call("all_reduce", line=13, group="tp"), Call("all_reduce", line=32)]
    halt: Program = [Draw(), Stall(line=9)]
    programs = [[*turn * 5, *(halt if rank == stuck else turn), *END] for rank in range(4)]
    judgement = diagnose(World(programs, {"tp": [(0, 1), (2, 3)]}).run().snapshot())
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("user-code-blocked", [stuck]), judgement.verdict


@pytest.mark.parametrize(("group", "certainty"), [("0", Certainty.PROVEN), ("tp", Certainty.LIKELY)])
def test_that_a_call_is_skipped_is_no_proof_where_it_may_still_come_in_its_group(
    group: str, certainty: Certainty
) -> None:
    turn: Program = [Draw(), Call("all_reduce", line=13), Call("all_gather", line=32, group=group)]
    short: Program = [Draw(), Call("all_gather", line=32, group=group)]
    programs = [[*turn * 5, *(short if rank == 1 else turn), *END] for rank in range(3)]
    judgement = diagnose(World(programs, {"tp": [(0, 1, 2)]}).run().snapshot())
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [1]), judgement.verdict
    assert judgement.verdict.certainty is certainty


@pytest.mark.parametrize("ranks", [2, 4])
def test_equal_calls_that_are_mispaired_before_the_hang_are_no_mismatch(ranks: int) -> None:
    """The last turn of rank 1 lacks a call; the next one has its kind and size, and the barrier after it does not."""
    turn: Program = [Draw(), Call("all_reduce", line=13), Call("all_reduce", line=32)]
    programs = [[*turn * 5, *(turn[:1] + turn[2:] if rank == 1 else turn), *END] for rank in range(ranks)]
    judgement = diagnose(World(programs).run().snapshot())
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [1]), judgement.verdict
    assert "left out all_reduce 11 of the default group (train.py:13)" in judgement.verdict.summary


def test_a_place_at_which_all_ranks_are_for_the_first_time_is_not_new_to_one_side() -> None:
    """A gather for each item of a list, of which one rank has fewer: no step before says how many are usual."""
    gather, then = Call("all_gather", line=26, size=64), Call(via="gradients", line=12)
    usual: Program = [*STEP * 3, Draw(), *[gather] * 5, Draw(), then]
    odd: Program = [*STEP * 3, Draw(), *[gather] * 4, Draw(), then]
    judgement = diagnose(world(usual, odd, usual))
    assert judgement.verdict.cause == "skipped-collective"
    assert blamed_ranks(judgement) == [1]
    assert not any("no rank had ever made" in sentence for sentence in judgement.verdict.evidence)


def _epochs_with_a_gather(last: bool) -> Program:
    """Steps that end in a broadcast; at the end of an epoch a gather comes before that."""
    found: Program = []
    for number in range(2):
        for batch in range(4):
            gather = batch == 3 and (number == 0 or last)
            found += [Draw(number, batch), GRADIENTS[0]]
            found += [*([Call("all_gather", line=50)] if gather else []), Call("broadcast", line=20)]
    return found


@everywhere
def test_a_call_of_the_end_of_an_epoch_is_due_there_by_the_epoch_before(ranks: int, culprit: int) -> None:
    judgement = judged(_epochs_with_a_gather(True), _epochs_with_a_gather(False), ranks, culprit)
    if ranks == 2:
        assert judgement.verdict.certainty is not Certainty.PROVEN
        return
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [culprit])
    assert judgement.verdict.certainty is Certainty.LIKELY  # once is no habit
    said = "at the end of the epoch before, all ranks called from train.py:50, before train.py:20"
    assert said in judgement.verdict.evidence


@pytest.mark.parametrize(
    ("asks", "makers", "named"),
    [("check", (0, 2), [1]), ("alike", (0, 2), []), ("value", (0, 2), []), ("check", (1,), [])],
    ids=["a check", "alike on all", "a value", "the one that makes it is odd"],
)
def test_a_first_call_behind_a_check_was_left_out_by_the_few(
    asks: str, makers: tuple[int, ...], named: list[int]
) -> None:
    """No step before has that call, as in a first validation; a check that data is there is meant to hold always."""
    programs = [
        [each for batch in range(9) for each in (Draw(0, batch), *GRADIENTS)]
        + [Call("all_gather", line=SAVE)] * (rank in makers)
        + [Draw(0, 9), *GRADIENTS]
        for rank in range(3)
    ]
    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way(asks),))
    verdict = diagnose(replace(World(programs).run().snapshot(), call_sites=(site,))).verdict
    skipped = [who.rank for who in verdict.culprits] if verdict.cause == "skipped-collective" else []
    assert skipped == named, verdict.summary
    assert not named or verdict.certainty is Certainty.LIKELY


@pytest.mark.parametrize(("lines", "named"), [((12, 12), True), ((12, 14), False)])
def test_a_step_that_is_no_longer_on_record_is_told_by_steps_that_are_all_alike(
    lines: tuple[int, int], *, named: bool
) -> None:
    """GIVEN a hang so late that the records of the step in which a rank skipped its one call are gone."""
    usual: list[Program] = [[Draw(0, batch), Call(line=lines[batch % 2])] for batch in range(40)]
    odd: list[Program] = [*usual[:6], [Draw(0, 6)], *usual[7:]]
    programs = [[*(action for step in steps for action in step), LoopEnd(), *END] for steps in (usual, odd)]
    snapshot = World(programs).run().snapshot()
    kept = tuple(
        replace(rank, collectives=replace(rank.collectives, recent=rank.collectives.recent[-28:]))
        for rank in snapshot.ranks
    )
    sites = tuple(CallSite((Frame(SCRIPT, line, "main"),), (LOSS,)) for line in lines)
    verdict = diagnose(replace(snapshot, ranks=kept, call_sites=sites)).verdict
    assert [who.rank for who in verdict.culprits] == [1]
    skipped = "Rank 1 skipped all_reduce (train.py:12) in epoch 0, batch 6 (step 6), probably at train.py:9"
    assert (skipped in verdict.summary) is named
    one_of = "by the source of the calls on record, only train.py:9 (`if bad(loss): continue`) leads past some of them"
    assert (one_of in verdict.evidence) is not named
    assert [who.where and who.where.line for who in verdict.culprits] == [9]
