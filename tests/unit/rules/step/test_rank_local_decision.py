"""`rank-local-decision`: a value of a rank's own decided about a call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.decisions import disagreement
from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Certainty, Collective, Frame, LoopFacts, RankEvidence, Status
from tests.unit.rules.step.decisions import END, GRADIENTS, SAVE, Program, blamed, changed, job, way
from tests.unit.rules.step.worlds import Groups, world
from tests.unit.simulator import SCRIPT, Action, Call, Draw, LoopEnd, World


@pytest.mark.parametrize(
    ("ranks", "alone", "named"),
    [(3, (1,), [1]), (4, (0, 1, 3), [2]), (2, (1,), [0, 1])],
    ids=["one saves", "one does not", "one of two"],
)
def test_a_condition_on_a_value_names_its_line_and_the_ranks_that_decided_otherwise(
    ranks: int, alone: tuple[int, ...], named: list[int]
) -> None:
    judgement = diagnose(job(ranks, alone, (way("value"),)))
    verdict = judgement.verdict
    assert (judgement.status, verdict.cause, verdict.certainty) == (
        Status.HUNG, "rank-local-decision", Certainty.PROVEN,
    )  # fmt: skip
    assert blamed(judgement) == [(rank, 28) for rank in named]
    assert (verdict.step.epoch, verdict.step.batch) == (0, 8)
    assert verdict.summary.startswith("`if loss < best` (train.py:28) came out differently on the ranks in epoch 0,")
    sentence = "by its own text the condition at train.py:28 asks neither for the rank nor for a value that was reduced"
    assert any(said.startswith(sentence) for said in verdict.evidence), verdict.evidence
    assert "reduce or broadcast the value" in verdict.fix


def test_a_condition_that_is_alike_on_all_ranks_is_passed_over() -> None:
    judgement = diagnose(job(3, (1,), (way("alike", line=27), way("value"))))
    assert (judgement.verdict.cause, blamed(judgement)) == ("rank-local-decision", [(1, 28)])


@pytest.mark.parametrize(
    "ways",
    [
        (),
        (way("rank"),),
        (way("check"),),
        (way("alike"),),
        (way("value", of_turn=True),),
        (way("value"), way("check", line=29)),
    ],
    ids=["nothing read", "rank", "check", "alike", "continue", "two"],
)
def test_any_other_way_past_the_call_leaves_the_cause_as_it_was(ways: tuple[Bypass, ...]) -> None:
    assert diagnose(job(3, (1,), ways)).verdict.cause in ("rank-zero-only-collective", "skipped-collective")


def test_a_call_of_every_step_was_skipped_whatever_the_condition_asks() -> None:
    judgement = diagnose(job(3, (0, 2), (way("value"),), every_step=True))
    assert (judgement.verdict.cause, [rank for rank, _ in blamed(judgement)]) == ("skipped-collective", [1])


@pytest.mark.parametrize(("around", "elsewhere", "decides"), [(10, 29, True), (27, 29, False), (27, 27, True)])
def test_a_condition_around_a_loop_within_one_turn_decides(around: int, elsewhere: int, *, decides: bool) -> None:
    """A broadcast for each parameter, under a condition on the clock; line 10 draws the batches.

    The innermost loop in which the ranks elsewhere stand is that of the turns, where it lies around the parameters.
    """
    parts = LoopFacts(Frame(SCRIPT, 29, "main"), outer=(Frame(SCRIPT, around, "main"),))
    theirs = replace(parts, where=Frame(SCRIPT, elsewhere, "main"))
    snapshot = job(3, (1,), (replace(way("value"), inner=False),))

    def standing(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        loaders = tuple(replace(each, where=Frame(SCRIPT, 10, "main")) for each in entry.reading.loaders)
        loop = parts if entry.rank == 1 else theirs
        stacks = tuple(replace(each, in_loop=True, loop=loop) for each in entry.stacks)
        return replace(entry, reading=replace(entry.reading, loaders=loaders), stacks=stacks)

    verdict = diagnose(changed(snapshot, standing)).verdict
    assert (verdict.cause == "rank-local-decision") is decides
    assert not decides or [who.rank for who in verdict.culprits] == [1]


def test_a_step_that_ends_in_the_middle_of_a_turn_has_the_order_of_earlier_steps() -> None:
    """GIVEN optimizer steps that are counted between line 20 and line 30 WHEN one rank leaves out line 30

    THEN that is what differs: the others made the call at line 20, in which it stands, in the step before.
    """
    first, second = Call("all_reduce", line=20, group="a"), Call("all_reduce", line=30, group="b")
    turn: list[Action] = [first, Draw(), second]
    programs = [[*turn * 6, first, Draw(), *([] if rank == 1 else [second]), *turn] for rank in range(3)]
    groups = {"a": [(0, 1, 2)], "b": [(0, 1, 2)]}
    snapshot = World(programs, groups).run().snapshot()
    sites = tuple(CallSite((Frame(SCRIPT, line, "main"),), (way("value", line=line - 1),)) for line in (20, 30))
    found = disagreement(Case(replace(snapshot, call_sites=sites)))
    assert found is not None
    assert (found.made, found.without, found.place.lines) == ((0, 2), (1,), ((SCRIPT, 30),))
    judgement = diagnose(replace(snapshot, call_sites=sites))
    assert (judgement.verdict.cause, blamed(judgement)) == ("skipped-collective", [(1, 29)])


@pytest.mark.parametrize(("in_loop", "cause"), [(False, "rank-local-decision"), (True, "collective-mismatch")])
def test_before_the_first_step_the_order_of_the_source_says_which_call_was_gone_by(in_loop: bool, cause: str) -> None:
    """Rank 0 finds a file and loads it at line 30, the others found none and are at line 40, where all come."""
    load, common = Call("all_gather", line=SAVE), Call("broadcast", line=40)

    def straight(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, in_loop=in_loop) for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    snapshot = changed(World([[load, common], [common], [common]]).run().snapshot(), straight)
    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way("value"),))
    judgement = diagnose(replace(snapshot, call_sites=(site,)))
    assert judgement.verdict.cause == cause, judgement.verdict.summary
    if not in_loop:
        assert blamed(judgement) == [(0, 28)]


@pytest.mark.parametrize(
    ("alone", "asks", "decided"),
    [(1, "check", True), (0, "check", False), (1, "rank", False)],
    ids=["of any rank", "of what only rank 0 may have", "on the rank"],
)
def test_a_check_that_led_one_rank_alone_to_a_call_new_to_all_decided(alone: int, asks: str, decided: bool) -> None:
    """A broadcast behind `if frozen.any()`, which never held before; the others are at line 40, where all come."""
    load, common = Call("all_gather", line=SAVE), Call("broadcast", line=40)
    snapshot = World([[load, common] if rank == alone else [common] for rank in range(3)]).run().snapshot()

    def straight(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, in_loop=False) for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way(asks),))
    judgement = diagnose(replace(changed(snapshot, straight), call_sites=(site,)))
    assert (judgement.verdict.cause == "rank-local-decision") is decided, judgement.verdict.summary
    if decided:
        assert blamed(judgement) == [(alone, 28)]


def test_a_package_may_make_the_call_that_was_gone_by_at_two_lines_of_its_own() -> None:
    """GIVEN `with main_process_first():` at line 30, whose barrier rank 0 makes at its end and rank 1 at its begin,
    WHEN rank 2 goes by it, THEN it is the one that went by, and the others are at one place."""
    last, first = (Call("barrier", line=SAVE, trainer=line) for line in (2150, 2141))
    common = Call("broadcast", line=40)

    def straight(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, in_loop=False) for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    snapshot = changed(World([[last, common], [first, common], [common]]).run().snapshot(), straight)
    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way("value"),))
    judgement = diagnose(replace(snapshot, call_sites=(site,)))
    assert judgement.verdict.cause == "rank-local-decision", judgement.verdict.summary
    assert [rank for rank, _ in blamed(judgement)] == [2]


FIT_LINE = Frame(SCRIPT, 50, "main")
FIT = Call("broadcast", line=50)  # below a trainer, which calls the user's hook from there as well


@pytest.mark.parametrize(
    ("ranks", "alone", "turns", "odd"),
    [(3, (1,), 3, 1), (3, (0, 1), 3, 2), (2, (1,), 3, None), (3, (1,), 1, None)],
    ids=["one saves", "one does not", "of two halves", "no habit"],
)
@pytest.mark.parametrize(("asks", "told"), [("value", "asks neither for the rank"), ("alike", "one of them differs")])
def test_a_call_where_another_one_had_always_followed_was_decided(
    ranks: int, alone: tuple[int, ...], turns: int, odd: int | None, asks: str, told: str
) -> None:
    """Every turn reduces and broadcasts, from one line of the user's; in the last one some ranks save instead."""
    turn: Program = [Call("all_reduce", line=50), FIT]
    last = {rank: [Call("barrier", line=SAVE)] * (rank in alone) + [FIT] for rank in range(ranks)}
    snapshot = World([[*turn * turns, turn[0], *last[rank]] for rank in range(ranks)]).run().snapshot()
    site = CallSite((Frame(SCRIPT, SAVE, "main"), FIT_LINE), (way(asks),))
    judgement = diagnose(replace(changed(snapshot, _below_fit), call_sites=(site,)))
    decided = judgement.verdict.cause == "rank-local-decision"
    assert decided is (odd is not None), judgement.verdict.summary
    if decided:
        assert blamed(judgement) == [(odd, 28)]
        assert any(told in sentence for sentence in judgement.verdict.evidence)


@pytest.mark.parametrize("skips", [False, True])
def test_a_counter_comes_out_alike_at_the_same_count(skips: bool) -> None:
    """WHEN a turn may go without its step, THEN a step too few explains that the counters differ."""
    turn: Program = [Call("all_reduce", line=50), FIT]
    last = {rank: [Call("barrier", line=SAVE)] * (rank == 1) + [FIT] for rank in range(3)}
    snapshot = World([[*turn * 3, turn[0], *last[rank]] for rank in range(3)]).run().snapshot()
    every = CallSite((Frame(SCRIPT, SAVE, "main"), FIT_LINE), (replace(way("alike"), counts=True),))
    usual = CallSite((FIT_LINE,), (way("check", line=49),) * skips)
    judgement = diagnose(replace(changed(snapshot, _below_fit), call_sites=(every, usual)))
    assert (judgement.verdict.cause == "rank-local-decision") is not skips
    assert ("asks for a counter or an interval that differs by rank" in judgement.verdict.summary) is not skips


def test_a_counter_may_differ_where_the_ranks_are_in_different_steps() -> None:
    turn: Program = [Call("all_reduce", line=50), FIT]
    save = [Call("barrier", line=SAVE)]
    snapshot = World([[*turn * 3, turn[0], *save * (rank != 2), FIT] for rank in range(3)]).run().snapshot()
    site = CallSite((Frame(SCRIPT, SAVE, "main"), FIT_LINE), (way("alike"),))

    def later(call: Collective) -> Collective:
        return replace(call, step=(call.step or 0) + 1)

    def ahead(entry: RankEvidence) -> RankEvidence:
        held = replace(entry.collectives, recent=tuple(map(later, entry.collectives.recent)))
        return replace(entry, collectives=held) if entry.rank == 2 else entry

    moved = changed(changed(snapshot, _below_fit), ahead)
    assert diagnose(replace(moved, call_sites=(site,))).verdict.cause != "rank-local-decision"


def _below_fit(entry: RankEvidence) -> RankEvidence:
    """The hook at line 30 is called by the trainer, which the user's line 50 runs."""

    def below(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        return (*frames, FIT_LINE) if any(frame.line == SAVE for frame in frames) else frames

    def of_call(call: Collective) -> Collective:
        return replace(call, frames=below(call.frames))

    recorded = entry.collectives
    recent, open_calls = (tuple(map(of_call, each)) for each in (recorded.recent, recorded.open_calls))
    stacks = tuple(replace(stack, frames=below(stack.frames)) for stack in entry.stacks)
    held = replace(recorded, recent=recent, open_calls=open_calls)
    return replace(entry, stacks=stacks, earlier_stacks=stacks, collectives=held)


@pytest.mark.parametrize(
    ("after", "clips", "named"),
    [
        pytest.param("dp", (3,), [3], id="the ranks of the other group did without"),
        pytest.param("dp", (0, 1, 3), [2], id="the ranks of the other group did it too"),
        pytest.param("0", (3,), [3], id="all others stand behind it"),
        pytest.param("0", (0, 1, 3), [2], id="the ranks of the other group stand behind it"),
    ],
)
def test_of_two_ranks_of_a_group_the_ranks_of_other_groups_tell_the_odd_one(
    after: str, clips: tuple[int, ...], named: list[int]
) -> None:
    """In batch 8 the ranks `clips` call within their group of two, as all did in batch 2."""
    groups: Groups = {"tp": [(0, 1), (2, 3)], "dp": [(0, 2), (1, 3)]}

    def program(rank: int) -> Program:
        made: Program = []
        for batch in range(12):
            clip = batch == 2 or (batch == 8 and rank in clips)
            made += [Draw(0, batch), *([Call(group="tp", line=SAVE)] if clip else []), Call(group=after, line=40)]
        return [*made, *END]

    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way("value"),))
    snapshot = world(*map(program, range(4)), groups=groups)
    judgement = diagnose(replace(snapshot, call_sites=(site,)))
    assert judgement.verdict.cause == "rank-local-decision", judgement.verdict.summary
    assert [rank for rank, _ in blamed(judgement)] == named, judgement.verdict.summary


def test_a_call_that_all_make_from_one_place_was_not_decided_though_its_type_differs() -> None:
    turn: Program = [Call("all_reduce", line=50), Call("all_gather", line=SAVE)]
    other = Call("all_gather", line=SAVE, dtype="bfloat16")
    snapshot = World([[*turn * 3, turn[0], other if rank == 1 else turn[1]] for rank in range(3)]).run().snapshot()
    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way("alike"),))
    verdict = diagnose(replace(snapshot, call_sites=(site,))).verdict
    assert verdict.cause != "rank-local-decision", verdict.summary


def test_turns_that_each_rank_takes_by_itself_in_a_step_are_left_out_by_none() -> None:
    """GIVEN an optimizer that calls its closure as often as its rank's own loss asks THEN neither of two is wrong."""

    def program(*turns: int) -> Program:
        made: Program = []
        for batch, times in enumerate(turns):
            made += [Draw(0, batch), *[Call(line=SAVE)] * times]
        return [*made, *END]

    verdict = diagnose(World([program(20, 12, 26, 12), program(20, 26, 13, 12)]).run().snapshot()).verdict
    assert (verdict.cause, verdict.certainty) == ("rank-local-decision", Certainty.LIKELY), verdict.summary
    assert [(who.rank, who.where and who.where.line) for who in verdict.culprits] == [(0, SAVE), (1, SAVE)]
    assert "made all_reduce (train.py:30) different numbers of times in epoch 0, batch 1" in verdict.summary


def test_of_two_ranks_the_one_that_made_a_call_which_was_new_to_both_decided_otherwise() -> None:
    def program(rank: int) -> Program:
        made: Program = []
        for batch in range(12):
            made += [Draw(0, batch), GRADIENTS, *[Call("all_gather", line=SAVE)] * ((rank, batch) == (1, 8))]
        return [*made, *END]

    snapshot = World([program(rank) for rank in range(2)]).run().snapshot()
    snapshot = replace(snapshot, call_sites=(CallSite((Frame(SCRIPT, SAVE, "main"),), (way("value"),)),))
    judgement = diagnose(snapshot)
    assert (judgement.verdict.cause, blamed(judgement)) == ("rank-local-decision", [(1, 28)])


def _epoch(number: int) -> list[Action]:
    """It begins with a broadcast, as where a package synchronises the state of random numbers."""
    batches = [each for batch in range(4) for each in (Draw(number, batch), Call("all_reduce", line=14))]
    return [Call("broadcast", line=12), *batches, LoopEnd()]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("asks", ["value", "rank"])
def test_a_value_that_leads_one_rank_to_a_call_between_epochs_decides(asks: str, ranks: int) -> None:
    """`if patience.waited and trainer.check_trigger()`: the others begin the next epoch, as once before."""
    both = [*_epoch(0), *_epoch(1)]
    ends = (Call("all_reduce", line=40, size=1), Call("broadcast", line=12))
    snapshot = world(*([*both, ends[0] if rank == 1 else ends[1]] for rank in range(ranks)))
    way = Bypass(Frame(SCRIPT, 40, "main"), "waited and check()", asks=asks)
    judgement = diagnose(replace(snapshot, call_sites=(CallSite((Frame(SCRIPT, 40, "main"),), (way,)),)))
    assert [rank for rank, _ in blamed(judgement)] == [1]
    assert (judgement.verdict.cause == "rank-local-decision") is (asks == "value")
    if asks == "value":
        assert "`waited and check()` (train.py:40) came out differently on the ranks" in judgement.verdict.summary
