"""DDP's first steps, in which it finds out about its buckets by further collectives, are no rank's habit."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest

from hangwatch.facts.differences.parting import Left, parting
from hangwatch.judge import Case, diagnose
from hangwatch.model import Bypass, CallSite, Divergence, Frame, Progress, RankEvidence, Snapshot, StepEntry
from tests.unit.job import IN_BARRIER, rank, snapshot
from tests.unit.simulator import SCRIPT, Action, Call, Draw, LoopEnd, Stall, World

GRADIENTS = Call(via="gradients", line=12)


def training(batches: int, *, skip: int | None = None) -> list[Action]:
    """Two collectives more in batch 1, as DDP's are, and none in batch `skip`."""
    counts = [0 if batch == skip else 3 if batch == 1 else 1 for batch in range(batches)]
    actions: list[Action] = []
    for batch, count in enumerate(counts):
        actions += [Draw(0, batch), *[GRADIENTS] * count]
    return [*actions, LoopEnd()]


def without_frames(snapshot: Snapshot) -> Snapshot:
    """NCCL's recorder, asked without the interpreter lock, tells no call sites of what C++ code issued."""
    ranks = (
        replace(
            rank,
            collectives=replace(
                rank.collectives, recent=tuple(replace(call, frames=()) for call in rank.collectives.recent)
            ),
        )
        for rank in snapshot.ranks
    )
    return replace(snapshot, ranks=tuple(ranks))


def test_the_rank_that_skipped_is_told_by_its_habit() -> None:
    snapshot = World([training(9), training(9, skip=6)]).run().snapshot(still_s=20.0)
    found = parting(Case(without_frames(snapshot)))
    assert found is not None
    assert (found.how, found.who, found.divergence.step) == (Left.SKIPPED, (1,), 6)


def test_a_rank_that_is_in_that_step_still_has_left_nothing_out() -> None:
    # GIVEN a rank that skipped the call of batch 6, and one that has not come to it
    programs = [training(9) for _ in range(6)]
    programs[1], programs[3] = training(9, skip=6), [*training(6)[:-1], Draw(0, 6), Stall()]
    found = parting(Case(without_frames(World(programs).run().snapshot(still_s=20.0))))
    # THEN the one that is past the step is named
    assert found is not None
    assert (found.how, found.who) == (Left.SKIPPED, (1,))


def test_two_steps_are_too_few_for_a_habit_without_the_first_ones() -> None:
    snapshot = World([training(4), training(4, skip=3)]).run().snapshot(still_s=20.0)
    found = parting(Case(without_frames(snapshot)))
    assert found is None or found.how is not Left.EXTRA


def epochs(number: int, *, twice: tuple[int, int] = (-1, -1)) -> list[Action]:
    """Epochs of four batches, with a gather behind each; the turn of the batch `twice` is made again."""
    actions: list[Action] = []
    for epoch in range(number):
        for batch in range(4):
            actions += [Draw(epoch, batch), *[GRADIENTS] * (1 + ((epoch, batch) == twice))]
        actions += [LoopEnd(), Call("all_gather", line=40)]
    return actions


def test_what_ranks_call_behind_an_epoch_is_no_habit_of_the_steps_within() -> None:
    # GIVEN steps of one call, and of two at the end of an epoch
    programs = [epochs(3, twice=(2, 1)) if rank == 2 else epochs(3) for rank in range(4)]
    found = parting(Case(without_frames(World(programs).run().snapshot(still_s=20.0))))
    # THEN two in a step within an epoch are one too many, and the sentence says of which steps that is known
    assert found is not None
    assert (found.how, found.who, found.step.batch) == (Left.EXTRA, (2,), 1)
    assert "rank 2 issued 1 in every earlier step that is recorded and ends no epoch" in str(found.witnesses)


def test_what_nearly_all_ranks_do_for_the_first_time_the_one_that_did_not_has_skipped() -> None:
    usual = training(9)
    gathers = [*usual[:-3], Call("all_gather", line=40), *usual[-3:]]
    found = parting(Case(World([gathers, gathers, gathers, usual]).run().snapshot(still_s=20.0)))
    assert found is not None
    assert (found.how, found.who, found.call) == (Left.SKIPPED, (3,), "all_gather (train.py:40)")


def test_where_two_make_a_new_call_and_one_does_not_no_side_is_blamed() -> None:
    usual = training(9)
    gathers = [*usual[:-3], Call("all_gather", line=40), *usual[-3:]]
    found = parting(Case(World([gathers, gathers, usual]).run().snapshot(still_s=20.0)))
    assert found is not None
    assert not found.who


CONDITION = Bypass(Frame(SCRIPT, 49, "main"), "if loss < best", asks="value")
HANDLER = Bypass(Frame(SCRIPT, 52, "main"), "except KeyError")
IN_PACKAGE = Bypass(Frame("/venv/lib/python3.12/site-packages/fit/hooks.py", 8, "wrapped"), "", False, "package")


@pytest.mark.parametrize(
    ("evaluates", "guard", "ways", "how", "who"),
    [
        (True, "none", (CONDITION,), Left.UNKNOWN, ()),
        (True, "none", (HANDLER,), Left.SKIPPED, (1,)),
        (True, "none", (HANDLER, IN_PACKAGE), Left.UNKNOWN, ()),
        (True, "rank", (CONDITION,), Left.EXTRA, (0,)),
        (False, "none", (CONDITION,), Left.EXTRA, (0,)),
        (False, "none", (HANDLER,), Left.EXTRA, (0,)),
    ],
)
def test_in_a_step_that_is_new_to_all_a_new_call_is_not_one_too_many(
    evaluates: bool, guard: str, ways: tuple[Bypass, ...], how: Left, who: tuple[int, ...]
) -> None:
    """After the first evaluation of all, rank 0 is in a call behind it and rank 1 in the next step.

    If the source shows no way past that call but an error, and no package asks for the rank, rank 1 has left it out.
    """

    def program(rank: int) -> list[Action]:
        first = [action for batch in range(6) for action in (Draw(0, batch), GRADIENTS)]
        evaluation = [Call("all_gather", line=40)] * (4 if evaluates else 0)
        return [*first, *evaluation, *([Call("barrier", line=50)] if rank == 0 else [Draw(0, 6), GRADIENTS])]

    def guarded(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, guard=guard if entry.rank == 0 else "none") for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    snapshot = World([program(0), program(1)]).run().snapshot(still_s=20.0)
    sites = (CallSite((Frame(SCRIPT, 50, "main"),), ways),)
    snapshot = replace(snapshot, ranks=tuple(map(guarded, snapshot.ranks)), call_sites=sites)
    found = parting(Case(snapshot))
    assert found is not None
    assert (found.how, found.who) == (how, who)
    passed = "a turn of the loop can go on without barrier (train.py:50) at train.py:52 (`except KeyError`)"
    assert (passed in diagnose(snapshot).verdict.evidence) == (how is Left.UNKNOWN and HANDLER in ways)


def test_the_way_past_a_call_is_known_though_no_earlier_call_is_on_record() -> None:
    """GIVEN gradients without records, and one call that ranks 0 and 1 make by themselves THEN the way is named."""
    steps = [action for _ in range(4) for action in (Draw(), GRADIENTS)]
    common: list[Action] = [*steps, Call("barrier", line=30)]
    programs = [[*common, *([] if rank == 2 else [Call(line=33)]), *steps] for rank in range(3)]
    snapshot = World(programs).run().snapshot()
    ranks = tuple(_only_own(entry) for entry in snapshot.ranks)
    site = CallSite((Frame(SCRIPT, 33, "main"),), (Bypass(Frame(SCRIPT, 35, "main"), "except FileNotFoundError"),))
    found = parting(Case(replace(snapshot, ranks=ranks, call_sites=(site,))))
    assert found is not None
    assert (found.how, found.who, found.call) == (Left.SKIPPED, (2,), "all_reduce (train.py:33)")
    assert [way.text for way in found.ways] == ["except FileNotFoundError"]


@pytest.mark.parametrize(("more", "named"), [(0, True), (1, False)])
def test_a_call_is_left_out_where_all_others_of_that_step_are_on_no_record(more: int, *, named: bool) -> None:
    """GIVEN gradients without records, as many on each rank; not where one of them is missing as well."""
    rest: list[Action] = [*[GRADIENTS] * more, Call(line=33, size=4)]
    steps: list[Action] = [action for _ in range(5) for action in (Draw(), GRADIENTS, *rest)]
    programs = [[*steps, Draw(), GRADIENTS, *([] if rank == 1 else rest)] for rank in range(3)]
    snapshot = World([[*program, Draw(), GRADIENTS] for program in programs]).run().snapshot()
    found = parting(Case(replace(snapshot, ranks=tuple(map(_only_own, snapshot.ranks)))))
    assert found is not None
    assert (found.how, found.who) == (Left.SKIPPED, (1,))
    assert found.call == ("all_reduce (train.py:33)" if named else "")


def _only_own(entry: RankEvidence) -> RankEvidence:
    """Gloo's flight recorder has no entry of what DDP's reducer issued."""
    own = tuple(call for call in entry.collectives.recent if not any(frame.line == 12 for frame in call.frames))
    return replace(entry, collectives=replace(entry.collectives, recent=own))


@pytest.mark.parametrize(("counts", "said"), [((3, 3, 1), "agree"), ((2, 3, 1), "issued more")])
def test_ranks_that_are_still_in_the_step_need_not_agree(counts: tuple[int, int, int], said: str) -> None:
    """Each of them is as far in it as the backend let it come."""
    owners = [Call("broadcast", line=30 + owner, root=owner, size=4) for owner in range(3)]
    turns: list[list[Action]] = [[Draw(0, batch), GRADIENTS, *owners] for batch in range(6)]
    whole = [action for turn in turns for action in turn]
    skips = [*whole[: -len(owners)], Draw(0, 6), GRADIENTS]
    snapshot = World([whole, whole, skips]).run().snapshot(still_s=20.0)
    found = parting(Case(snapshot))
    assert found is not None
    assert (found.how, found.who) == (Left.SKIPPED, (2,))
    seen = replace(found.divergence, counts=dict(enumerate(counts)))
    told = parting(Case(replace(snapshot, divergences=(seen,))))
    assert told is not None
    assert told.divergence == seen
    assert f"most ranks {said} in that step: ranks 0-1" in [witness.says for witness in told.witnesses]


@pytest.mark.parametrize("in_backward", [False, True])
def test_calls_of_several_lines_are_named_and_those_that_only_follow_in_backward_are_not(in_backward: bool) -> None:
    """GIVEN a branch with a call of its own and one more in backward, WHEN a rank leaves it out, THEN the call of the
    branch is named: the rank has not left out backward."""
    turn: list[Action] = [Call(line=20), Call(line=30), Call(line=40)]
    whole = [action for batch in range(8) for action in (Draw(0, batch), *turn)]
    short = [action for batch in range(8) for action in (Draw(0, batch), *(turn[2:] if batch == 6 else turn))]
    snapshot = World([whole, whole, [*short, *turn[:1]]]).run().snapshot()
    engine = Frame("torch/autograd/graph.py", 979, "_engine_run_backward")

    def by_the_engine(rank: RankEvidence) -> RankEvidence:
        recent = tuple(
            replace(call, frames=(engine, *call.frames)) if call.frames[0].line == 30 else call
            for call in rank.collectives.recent
        )
        return replace(rank, collectives=replace(rank.collectives, recent=recent))

    if in_backward:
        snapshot = replace(snapshot, ranks=tuple(map(by_the_engine, snapshot.ranks)))
    found = parting(Case(snapshot))
    assert found is not None
    assert found.who == (2,)
    assert found.call == f"all_reduce (train.py:20){'' if in_backward else ' and all_reduce (train.py:30)'}"


def test_without_a_record_of_earlier_steps_no_call_is_called_new() -> None:
    """GIVEN turns of an inner loop whose number is each rank's own WHEN the record begins within the step."""
    turns = [(5, 5), (9, 9), (7, 7), (12, 4), (5, 10)]

    def program(rank: int) -> list[Action]:
        made: list[Action] = [Call("broadcast", line=5)]
        for each in turns:
            made += [Draw(), *[Call(line=18)] * each[rank]]
        return [*made, Draw(), Call("barrier", line=30 + rank)]

    def shortened(entry: RankEvidence) -> RankEvidence:
        kept = tuple(call for call in entry.collectives.recent if call.seq == 1 or call.seq > 26)
        return replace(entry, collectives=replace(entry.collectives, recent=kept))

    snapshot = World([program(0), program(1)]).run().snapshot(still_s=20.0)
    snapshot = replace(snapshot, ranks=tuple(map(shortened, snapshot.ranks)))
    found = parting(Case(snapshot))
    assert found is not None
    assert (found.how, found.divergence.step) == (Left.UNKNOWN, 3)
    assert diagnose(snapshot).verdict.culprits == ()


def long_since(*counts: int) -> Snapshot:
    """Ranks that have made one call in every so-and-so-manyth step; in step 900, of which no record is left, only 1."""
    ranks = []
    for number in range(3):
        issued = list(accumulate((counts * 40)[:60], initial=500 + (number == 1)))  # it made one more in step 900
        steps = tuple(StepEntry(5000 + n, None, None, None, 1.0 * n, {"0": made}) for n, made in enumerate(issued))
        progress = Progress(None, None, steps[-1].step)
        ranks.append(rank(number, IN_BARRIER, steps=steps, progress=progress, issued=issued[-1], world_size=3))
    remembered = Divergence("0", (0, 1, 2), 900, None, None, {0: 0, 1: 1, 2: 0}, (), (1,))
    return snapshot(*ranks, world_size=3, divergences=(remembered,))


def test_of_a_step_long_since_the_many_say_nothing_where_both_numbers_are_usual() -> None:
    found = parting(Case(long_since(0, 0, 1, 0, 1, 0, 0)))
    assert found is not None
    assert (found.how, found.who) == (Left.UNKNOWN, ())


def test_of_a_step_long_since_the_many_are_heard_where_one_number_is_not_usual() -> None:
    found = parting(Case(long_since(0)))
    assert found is not None
    assert (found.how, found.who) == (Left.EXTRA, (1,))


def logged(
    epochs: int, *, at: tuple[int, ...], extra: tuple[int, int] = (-1, -1), lacks: tuple[int, int] = (-1, -1)
) -> list[Action]:
    """Epochs of 6 batches with gradients each, and a log in batches `at` and in `extra`, but not where it `lacks`."""
    actions: list[Action] = []
    for epoch, batch in ((epoch, batch) for epoch in range(epochs) for batch in range(6)):
        due = (batch in at or (epoch, batch) == extra) and (epoch, batch) != lacks
        actions += [Draw(epoch, batch), GRADIENTS, *[Call(line=20)] * due, *[LoopEnd()] * (batch == 5)]
    return actions


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("apart", "how"), [({"extra": (2, 2)}, Left.EXTRA), ({"lacks": (2, 3)}, Left.SKIPPED)], ids=["extra", "skipped"]
)
def test_of_two_ranks_that_log_now_and_then_the_one_off_the_rhythm_is_named(
    apart: dict[str, tuple[int, int]], how: Left, rank: int
) -> None:
    """GIVEN logs in batches 0 and 3 of each epoch, and one rank that logs in batch 2 of the third, or not in batch 3"""
    programs = [logged(3, at=(0, 3), **(apart if each == rank else {})) for each in range(2)]
    found = parting(Case(World(programs).run().snapshot(still_s=20.0)))
    # THEN what was due there is known by the steps before, which repeat every three
    assert found is not None
    assert (found.how, found.who) == (how, (rank,))
    due = {Left.EXTRA: "1 was due", Left.SKIPPED: "2 were due"}[how]
    assert f"the numbers of all steps before repeat every 3 steps, and {due}" in [each.says for each in found.witnesses]


def test_without_a_rhythm_a_call_that_comes_now_and_then_names_neither() -> None:
    programs = [logged(3, at=()) for _ in range(2)]
    for program, batches in zip(programs, ((2, 5, 6, 12, 13), (2, 5, 6, 12)), strict=True):
        draws = [index for index, action in enumerate(program) if isinstance(action, Draw)]
        for batch in reversed(batches):
            program.insert(draws[batch] + 2, Call(line=20))
    found = parting(Case(World(programs).run().snapshot(still_s=20.0)))
    assert found is not None
    assert found.who == ()
