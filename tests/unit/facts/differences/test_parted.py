"""The first mispaired call after a history that was alike on all ranks: which side went by the other's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.parted import ended_by_itself, parted, strayed, ways_by
from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Frame, LoaderFacts, LoopFacts, RankEvidence, Snapshot
from tests.unit.rules.step.decisions import blamed, changed, way
from tests.unit.simulator import SCRIPT, Action, Call, Draw, World

RETURNS = Call("broadcast", line=40)  # of every turn of the loop over lines 20 to 60
LEARNS = Call("all_reduce", line=30)  # where a condition at line 28 asks for it
LAST = Call("reduce", line=50)
METRICS = replace(LEARNS, size=3)


def job(*ranks: list[Action], loop: LoopFacts | None = None, ways: tuple[Bypass, ...] = (way("value"),)) -> Snapshot:
    """Three turns alike and then the calls of each rank's own; all stand in a loop."""
    world = World([[RETURNS, RETURNS, RETURNS, *own] for own in ranks])
    site = CallSite((Frame(SCRIPT, 30, "main"),), ways)
    standing = changed(world.run().snapshot(), lambda entry: standing_in(entry, loop))
    return replace(standing, call_sites=(site,))


def standing_in(entry: RankEvidence, loop: LoopFacts | None) -> RankEvidence:
    stacks = tuple(replace(each, in_loop=True, loop=loop) for each in entry.stacks)
    return replace(entry, stacks=stacks, earlier_stacks=stacks)


def test_the_call_that_comes_first_in_the_next_turn_was_gone_by() -> None:
    snapshot = job([LEARNS, RETURNS], [RETURNS], [LEARNS, RETURNS])
    found = parted(Case(snapshot))
    assert found is not None
    assert (found.made, found.without, found.call.op, found.left) == ((0, 2), (1,), "all_reduce", False)


def test_its_condition_is_named_with_the_rank_that_answered_it_otherwise() -> None:
    """No rank had ever made that call, so that neither habits nor steps tell the sides apart."""
    judgement = diagnose(job([LEARNS, RETURNS], [RETURNS], [LEARNS, RETURNS]))
    assert (judgement.verdict.cause, blamed(judgement)) == ("rank-local-decision", [(1, 28)])
    assert judgement.verdict.summary == (
        "`if loss < best` (train.py:28) came out differently on the ranks:"
        " ranks 0 and 2 called all_reduce (train.py:30), rank 1 did not."
    )


def test_a_condition_on_the_rank_beside_it_decides_as_well() -> None:
    """GIVEN rank 0 alone in a call behind a condition on the rank, and then one on a value that only it has."""

    def guarded(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(each, guard="rank") for each in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks) if entry.rank == 0 else entry

    ways = (way("rank", line=27), way("value"))
    judgement = diagnose(changed(job([METRICS, RETURNS], [RETURNS], [RETURNS], ways=ways), guarded))
    assert (judgement.verdict.cause, [who for who, _ in blamed(judgement)]) == ("rank-zero-only-collective", [0])


def test_a_call_behind_the_last_common_one_comes_before_the_next_turn() -> None:
    """After line 40 follows line 50 in this turn: the ranks at line 30 are in the next one, and went by it."""
    found = parted(Case(job([LEARNS], [LAST], [LAST])))
    assert found is not None
    assert (found.made, found.without, found.call.op) == ((1, 2), (0,), "reduce")


@pytest.mark.parametrize(("line", "counts"), [(28, True), (38, True), (20, True)])
def test_a_way_that_was_answered_before_the_last_common_call_is_none(line: int, counts: bool) -> None:
    behind = Call("all_reduce", line=45)
    snapshot = job([behind], [LAST], [LAST], ways=())
    site = CallSite((Frame(SCRIPT, 45, "main"),), (way("value", line=line), way("value", line=43)))
    judgement = diagnose(replace(snapshot, call_sites=(site,)))
    assert judgement.verdict.cause == "rank-local-decision"
    assert blamed(judgement) == [(0, 43)]


def solving(*, leaves: tuple[int, ...] = (35,), outer: bool = True, last: int = 41) -> LoopFacts:
    """A loop over lines 35 to `last` of a solver, within the loop over the steps."""
    return LoopFacts(
        Frame(SCRIPT, 35, "main"),
        leaves=tuple(Frame(SCRIPT, line, "main") for line in leaves),
        outer=(Frame(SCRIPT, 20, "main"),) if outer else (),
        last=last,
    )


def test_a_rank_in_another_turn_of_an_inner_loop_is_told_with_what_ends_it() -> None:
    first = Call("all_gather", line=36)
    snapshot = job([LAST], [first, RETURNS], [LAST], loop=solving(), ways=())
    found = parted(Case(snapshot))
    assert found is not None
    assert (found.made, found.without, found.left) == ((1,), (0, 2), True)
    judgement = diagnose(snapshot)
    assert (judgement.verdict.cause, blamed(judgement)) == ("rank-local-decision", [(1, 35)])
    assert judgement.verdict.summary == (
        "The ranks made different numbers of turns in the loop at train.py:35, which can be left at train.py:35:"
        " ranks 0 and 2 have left it, rank 1 went on to all_gather (train.py:36)."
    )


def _steps(*times: int) -> list[Action]:
    """So many chunks are gathered in each step."""
    actions: list[Action] = []
    for batch, count in enumerate(times):
        actions += [Draw(0, batch), *[Call("all_gather", line=36)] * count, LAST]
    return actions


@pytest.mark.parametrize(
    ("before", "odd"), [((3, 3), (0,)), ((4, 4), (1,)), ((2, 3), (1,))], ids=["more", "fewer", "no habit"]
)
def test_of_two_ranks_the_one_whose_turns_were_others_before_has_strayed(
    before: tuple[int, ...], odd: tuple[int, ...]
) -> None:
    """GIVEN chunks that are gathered in each step WHEN rank 0 gathers 4 and rank 1 gathers 3 in the last step"""
    programs = [_steps(*before, times) for times in (4, 3)]
    snapshot = changed(World(programs).run().snapshot(), lambda entry: standing_in(entry, solving(leaves=())))
    # THEN what both did in all steps before says whose number is unlike; without such a habit, that who left is odd
    case = Case(snapshot)
    found = parted(case)
    assert found is not None
    assert (found.made, found.without) == ((0,), (1,))
    who, why = strayed(case, found)
    assert who == odd
    assert why == (
        f"in every earlier step with that call, both sides had made it {before[0]} times"
        if before[0] == before[1]
        else ""
    )


@pytest.mark.parametrize(
    ("loop", "ways", "elsewhere", "told"),
    [
        (solving(leaves=()), (), False, True),
        (solving(leaves=()), (), True, False),  # an interrupt took them out of the loop around as well
        (replace(solving(leaves=()), skips=(Frame(SCRIPT, 36, "main"),)), (), False, False),  # a turn without the call
        (replace(solving(leaves=()), swallows=Frame(SCRIPT, 48, "main")), (), False, False),  # or by an error
        (solving(leaves=()), (way("value", line=39),), False, False),  # around the call alone
    ],
)
def test_a_loop_without_a_way_out_ends_with_what_it_goes_through(
    loop: LoopFacts, ways: tuple[Bypass, ...], *, elsewhere: bool, told: bool
) -> None:
    """A reduction for each class that a rank has seen: rank 1 has one more."""
    snapshot = job([LAST], [RETURNS], [LAST], loop=loop, ways=())
    if elsewhere:
        gone_on = replace(loop, where=Frame(SCRIPT, 70, "main"), outer=())
        stands = {0: gone_on, 1: loop, 2: gone_on}
        snapshot = changed(snapshot, lambda entry: standing_in(entry, stands[entry.rank]))
    sites = (CallSite((Frame(SCRIPT, 40, "main"),), ways),)
    judgement = diagnose(replace(snapshot, call_sites=sites))
    said = "in the loop at train.py:35, which ends with what it goes through" in judgement.verdict.summary
    assert said is told
    assert not told or (judgement.verdict.cause, blamed(judgement)) == ("rank-local-decision", [(1, 35)])


def test_a_loop_over_a_loader_ends_with_its_data() -> None:
    """GIVEN a metric that is reduced for each batch of the validation WHEN one rank has a batch more."""
    snapshot = job([LAST], [RETURNS], [LAST], loop=solving(leaves=()), ways=())

    def validates(entry: RankEvidence) -> RankEvidence:
        drawn, where = (5, False) if entry.rank == 1 else (4, True), Frame(SCRIPT, 35, "main")
        held = LoaderFacts(1, 9, 0, drawn[0], exhausted=drawn[1], training=False, where=where)
        assert entry.reading is not None
        return replace(entry, reading=replace(entry.reading, loaders=(*entry.reading.loaders, held)))

    judgement = diagnose(changed(snapshot, validates))
    assert (judgement.verdict.cause, blamed(judgement)) == ("uneven-steps", [(0, 35), (2, 35)])
    assert "drew 4 batches there, and the others 5 so far" in judgement.verdict.summary


def test_a_loop_over_the_steps_is_no_loop_within_one() -> None:
    """A generator that drops bad batches, in a loop over epochs: the rank that has left it lacks a step."""
    snapshot = job([LAST], [RETURNS], [LAST], loop=solving(leaves=()), ways=())

    def stepping(entry: RankEvidence) -> RankEvidence:
        made = tuple(replace(call, step=number) for number, call in enumerate(entry.collectives.recent))
        return replace(entry, collectives=replace(entry.collectives, recent=made))

    for given, within_one in ((snapshot, True), (changed(snapshot, stepping), False)):
        case = Case(given)
        found = parted(case)
        assert found is not None
        assert ended_by_itself(case, found) is within_one


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(solving(leaves=()), id="nothing of the rank's own ends it"),
        pytest.param(solving(last=0), id="where it ends is not known"),
        pytest.param(solving(last=38), id="the common call lies outside of it"),
        pytest.param(solving(last=55), id="both calls lie in it"),
        pytest.param(solving(outer=False), id="it is the loop over the steps"),
    ],
)
def test_other_loops_say_nothing_of_their_turns(loop: LoopFacts) -> None:
    first = Call("all_gather", line=36)
    verdict = diagnose(job([LAST], [first, RETURNS], [LAST], loop=loop, ways=())).verdict
    assert "different numbers of turns" not in verdict.summary


def test_without_a_common_call_before_no_order_is_known() -> None:
    world = World([[LEARNS], [RETURNS], [RETURNS]])
    assert parted(Case(world.run().snapshot())) is None


def test_a_way_in_another_function_of_that_file_was_not_answered_by_a_call_below_it() -> None:
    """The model's forward stands above the loop that calls it: line 28 of `forward` comes before line 40 of `main`."""
    snapshot = job([LEARNS, RETURNS], [RETURNS], [LEARNS, RETURNS])
    loop = Frame(SCRIPT, 45, "main")

    def deeper(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        at = next((n for n, frame in enumerate(frames) if frame.line == LEARNS.line), None)
        return (*frames[:at], Frame(SCRIPT, 30, "learn"), loop) if at is not None else frames

    def change(entry: RankEvidence) -> RankEvidence:
        held = entry.collectives
        recent, inside = (
            tuple(replace(call, frames=deeper(call.frames)) for call in each) for each in (held.recent, held.open_calls)
        )
        stacks = tuple(replace(stack, frames=deeper(stack.frames)) for stack in entry.stacks)
        held = replace(held, recent=recent, open_calls=inside)
        return replace(entry, collectives=held, stacks=stacks, earlier_stacks=stacks)

    bypass = way("value", function="learn")
    site = CallSite((Frame(SCRIPT, 30, "learn"), loop), (bypass,))
    case = Case(replace(changed(snapshot, change), call_sites=(site,)))
    found = parted(case)
    assert found is not None
    assert ways_by(case, found) == (bypass,)


def test_a_caller_further_down_the_file_has_answered_nothing() -> None:
    """The program calls main() at line 90, behind every line of it."""
    module = Frame(SCRIPT, 90, "<module>")

    def below(entry: RankEvidence) -> RankEvidence:
        recent = tuple(replace(call, frames=(*call.frames, module)) for call in entry.collectives.recent)
        stacks = tuple(replace(each, frames=(*each.frames, module)) for each in entry.stacks)
        collectives = replace(entry.collectives, recent=recent)
        return replace(entry, collectives=collectives, stacks=stacks, earlier_stacks=stacks)

    snapshot = changed(job([LEARNS, RETURNS], [RETURNS], [LEARNS, RETURNS]), below)
    site = CallSite((Frame(SCRIPT, 30, "main"), module), (way("value"),))
    judgement = diagnose(replace(snapshot, call_sites=(site,)))
    assert (judgement.verdict.cause, blamed(judgement)) == ("rank-local-decision", [(1, 28)])


def test_below_a_trainer_its_own_lines_show_the_order() -> None:
    """One line of the user's leads to all calls: after line 120 of the trainer's loop come 140, and 100 of the next."""
    reduces = Call("all_reduce", line=52, trainer=120)
    hook, follows = Call("reduce", line=52, trainer=140), Call("broadcast", line=52, trainer=100)
    snapshot = World([[reduces] * 3 + [each] for each in (hook, hook, follows)]).run().snapshot()
    found = parted(Case(snapshot))
    assert found is not None
    assert (found.made, found.without, found.call.op) == ((0, 1), (2,), "reduce")
