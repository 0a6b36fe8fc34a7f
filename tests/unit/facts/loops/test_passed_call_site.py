"""A rank that waits behind the place where the others wait is not alone in its call: the report of a real trainer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.loops.passed_call_site import PassedCallSite, is_past_a_call, passed_call_site
from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Frame, RankEvidence, Snapshot
from hangwatch.report.incident import snapshot_of
from scripts import judged
from tests.unit.simulator import blamed_ranks

RUN, WAITS, HOOK = "/lightning/pytorch/loops/evaluation_loop.py", 152, 153  # where the trainer calls for each side
ODD = 2


def job() -> Snapshot:
    """One rank stands in a hook of its trainer, and the others in what the trainer calls right before that hook."""
    return snapshot_of([judged.incident("p37-fw-pl-metric-of-night-shots")])


def at_line(entry: RankEvidence, line: int) -> RankEvidence:
    """The rank came to where it stands from another line of the trainer's function."""

    def moved(frame: Frame) -> Frame:
        found = frame.file.endswith(RUN) and frame.line in (WAITS, HOOK)
        return replace(frame, line=line) if found else frame

    stacks = (replace(stack, frames=tuple(map(moved, stack.frames))) for stack in entry.stacks)
    return replace(entry, stacks=tuple(stacks))


def test_the_rank_that_is_further_in_the_trainers_function_has_left_a_call_out() -> None:
    assert passed_call_site(Case(job())) == PassedCallSite((ODD,), (0, 1, 3))
    judgement = diagnose(job())
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [ODD])


def test_a_rank_that_has_not_come_to_the_place_of_the_others_may_be_alone() -> None:
    snapshot = job()
    ranks = tuple(at_line(each, WAITS - 1) if each.rank == ODD else each for each in snapshot.ranks)
    assert not is_past_a_call(Case(replace(snapshot, ranks=ranks)), ODD)


@pytest.mark.parametrize("later", [{"draws": 1}, {"step": 1}])
def test_a_rank_in_an_earlier_turn_of_the_trainers_loop_has_not_passed_anything(later: dict[str, int]) -> None:
    """WHEN the others have drawn a batch since, or begun a step, THEN its later line lies behind theirs."""

    def on(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        made = entry.reading.progress
        more = {name: getattr(made, name) + count for name, count in later.items()}
        return replace(entry, reading=replace(entry.reading, progress=replace(made, **more)))

    snapshot = job()
    ranks = tuple(each if each.rank == ODD else on(each) for each in snapshot.ranks)
    assert not is_past_a_call(Case(replace(snapshot, ranks=ranks)), ODD)


def test_where_the_trainer_asks_for_the_rank_its_hook_may_be_called_on_some_ranks_alone() -> None:
    snapshot = job()
    (odd,) = (each for each in snapshot.ranks if each.rank == ODD)
    own = tuple(frame for frame in odd.main_stack if frame.file.endswith("/train.py"))
    asked = Bypass(own[0], "a check of the rank", inner=False, asks="package")
    sites = (CallSite(own, (asked,)), *(each for each in snapshot.call_sites if each.frames[0] != own[0]))
    assert not is_past_a_call(Case(replace(snapshot, call_sites=sites)), ODD)
