"""The ranks' diff of simulated jobs: what is missing, what is extra, and that equal histories have none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.calls.histories import COMPARED, ranks_diff
from hangwatch.facts.case import Case
from hangwatch.judge import diagnose
from hangwatch.model import DiffRow, Frame, Incident, Job, RankEvidence, RanksDiff, Stage, Status, Verdict
from hangwatch.report import diff as text
from hangwatch.report.html import render
from tests.unit.simulator import SCRIPT, Action, Call, Draw, LoopEnd, Stall, World

Program = list[Action]
BACKWARD = (Call(via="gradients", line=66), Call(via="gradients", line=66))
LOG = Call("all_gather", line=71, size=4)


def loop(batches: int, *, skip: int | None = None, extra: int | None = None) -> Program:
    """A loop of DDP that logs; backward is left out in batch `skip`, a barrier made in batch `extra`."""
    actions: Program = []
    for batch in range(batches):
        actions += [Draw(0, batch), *([] if batch == skip else BACKWARD)]
        actions += [Call("barrier", line=80)] if batch == extra else []
        actions += [LOG]
    return [*actions, LoopEnd()]


def diff_of(usual: Program, odd: Program, ranks: int = 4, culprit: int = 1) -> RanksDiff | None:
    world = World([odd if rank == culprit else usual for rank in range(ranks)])
    return ranks_diff(Case(world.run().snapshot()))


def ops(row: DiffRow) -> list[str]:
    return ["-" if call is None else call.op for call in row.calls]


def test_a_call_left_out_is_missing_and_what_follows_is_mispaired() -> None:
    diff = diff_of(loop(9), loop(9, skip=5))
    assert diff is not None
    assert diff.lanes == ((0, 2, 3), (1,))
    first = diff.iterations[0]
    assert (first.step.epoch, first.step.batch) == (0, 5)
    missing = first.rows[0]
    assert ops(missing) == ["all_reduce", "-"]
    assert missing.note == "missing on rank 1, which made this call in 4 earlier iterations"
    assert missing.calls[0] is not None
    assert missing.calls[0].open


def test_a_call_too_many_stands_where_no_other_rank_ever_was() -> None:
    diff = diff_of(loop(9), loop(9, extra=5))
    assert diff is not None
    notes = {tuple(ops(row)): row.note for row in diff.iterations[0].rows}
    assert notes[("-", "barrier")] == "only rank 1: no other rank was ever here"


def mesh(rank: int, odd_from: int = 6) -> Program:
    """Two by two ranks, each row and column with a group of its own; from `odd_from` on, ranks 1 and 2 call in turn."""
    row, column = ("ab" if rank < 2 else "cd")[0], "ef"[rank % 2]
    actions: Program = []
    for batch in range(9):
        both = [Call(line=20, group=row), Call(line=25, group=column)]
        actions += [Draw(0, batch), *(both[::-1] if batch >= odd_from and rank in (1, 2) else both)]
    return [*actions, LoopEnd()]


def test_ranks_lack_no_call_of_a_group_that_they_are_not_in() -> None:
    groups = {"a": [(0, 1)], "c": [(2, 3)], "e": [(0, 2)], "f": [(1, 3)]}
    diff = ranks_diff(Case(World([mesh(rank) for rank in range(4)], groups).run().snapshot()))
    assert diff is not None
    assert [each.step.batch for each in diff.iterations] == [6], "before, they only called groups of their own"
    notes = {row.note for row in diff.iterations[0].rows}
    assert not [note for note in notes if "was ever here" in note], "at that place all ranks were, for other groups"
    assert not [note for note in notes if "ranks" in note], "of the others, one is in the group"


def called_from(rank: RankEvidence, usual: int, odd: int, *, when: int) -> RankEvidence:
    """The barriers of `rank` are called from the line `usual`, in the step `when` from the line `odd`."""
    recent = rank.collectives.recent
    calls = tuple(
        replace(call, frames=(*call.frames, Frame(SCRIPT, odd if call.step == when else usual, "main")))
        if call.op == "barrier"
        else call
        for call in recent
    )
    return replace(rank, collectives=replace(rank.collectives, recent=calls))


def test_a_place_where_other_ranks_were_by_another_path_is_shown_with_the_path() -> None:
    # GIVEN a barrier that all ranks make in batch 2, and rank 1 again in batch 5, from another line
    usual = loop(9, extra=2)
    at = usual.index(Draw(0, 5)) + 1 + len(BACKWARD)
    odd = [*usual[:at], Call("barrier", line=80), *usual[at:]]
    snapshot = World([usual, odd]).run().snapshot()
    ranks = tuple(called_from(rank, 30, 37, when=5) for rank in snapshot.ranks)
    diff = ranks_diff(Case(replace(snapshot, ranks=ranks)))
    assert diff is not None
    (row,) = (row for row in diff.iterations[0].rows if "was ever here" in row.note)
    assert [frame.line for call in row.calls if call is not None for frame in call.via] == [37]


def test_a_rank_that_has_not_come_lacks_nothing() -> None:
    stuck: Program = [*loop(6)[:-1], Draw(0, 6), Stall(line=90), LoopEnd()]
    diff = diff_of(loop(9), stuck)
    assert diff is not None
    assert {row.note for each in diff.iterations for row in each.rows if row.note} <= {"rank 1 has not come here yet"}


def under_a_trainer(batches: int, *, lone: int | None = None) -> Program:
    """One line of the user's runs the trainer, which reduces gradients, and in batch `lone` reduces a metric first."""
    reduce, metric = Call(line=90, trainer=200), Call(line=90, trainer=310)
    actions: Program = []
    for batch in range(batches):
        actions += [Draw(0, batch), *([metric] if batch == lone else []), reduce]
    return [*actions, LoopEnd()]


def test_below_a_trainer_the_function_that_calls_tells_one_call_from_another() -> None:
    # GIVEN ranks that make all calls from one line, and one that makes a call too many in batch 5
    diff = diff_of(under_a_trainer(9), under_a_trainer(9, lone=5))
    assert diff is not None
    # THEN that call is told from the others of the same line, by the trainer's function
    row = next(row for row in diff.iterations[0].rows if row.note.startswith("only rank 1"))
    lone = row.calls[1]
    assert row.calls[0] is None
    assert lone is not None
    assert lone.caller is not None
    assert (lone.caller.function, lone.caller.line) == ("reduce", 310)
    # AND the reports name the function, and the user's line that runs the trainer
    assert text.told(lone) == "all_reduce (reduce, strategy.py:310, below train.py:90)"


def test_of_a_call_by_the_user_no_other_function_is_named() -> None:
    diff = diff_of(loop(9), loop(9, extra=5))
    assert diff is not None
    calls = [call for each in diff.iterations for row in each.rows for call in row.calls if call is not None]
    assert calls
    assert all(call.caller is None for call in calls)


def test_equal_histories_have_no_diff() -> None:
    assert diff_of(loop(9), loop(9)) is None


def test_of_many_ranks_some_are_compared_and_the_culprit_is_among_them() -> None:
    diff = diff_of(loop(7), loop(7, skip=4), ranks=300, culprit=211)
    assert diff is not None
    assert diff.compared <= COMPARED + COMPARED // 2
    assert (211,) in diff.lanes


@pytest.mark.parametrize("ranks", [2, 300])
def test_the_verdict_bears_it_and_the_report_shows_it(ranks: int) -> None:
    world = World([loop(7, skip=4) if rank == 1 else loop(7) for rank in range(ranks)])
    verdict = diagnose(world.run().snapshot()).verdict
    incident = of(verdict)
    shown = text.render(incident)
    assert "<- missing on rank 1, which made this call in 3 earlier iterations" in shown
    assert "all_reduce (train.py:66), waiting" in shown
    assert "missing on rank 1" in render(incident)


def test_without_a_difference_the_report_says_so() -> None:
    verdict = diagnose(World([loop(4), loop(4)]).run().snapshot()).verdict
    assert "do not differ" in text.render(of(replace(verdict, diff=None)))


def of(verdict: Verdict) -> Incident:
    return Incident("i", 0.0, 1.0, Status.HUNG, Stage.STEP, Job("j", "j", world_size=2), verdict)
