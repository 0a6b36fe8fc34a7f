"""A call too many that met a call of its own kind: the job stands later, at a pair that is innocent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.calls.extra_calls import ExtraCalls, extra_calls
from hangwatch.judge import Case, diagnose
from hangwatch.model import Bypass, CallSite, Certainty, Frame, Snapshot
from hangwatch.rules.step.rank_zero_only_collective import before_a_common_call
from tests.unit.simulator import SCRIPT, Action, Call, Draw, World

STEP: list[Action] = [Draw(), Call(line=12, via="gradients"), Call(line=13)]
TABLE = Call("barrier", line=30, function="on_validation_end")
# How a trainer asks all ranks whether a file exists.
ASKS: list[Action] = [Call("barrier", line=40, function="fit"), Call("all_reduce", line=41, function="fit")]


def job(*programs: list[Action], guard: str = "") -> Snapshot:
    """Ranks that end like this after some steps; the source shows `guard` before the first of the last calls."""
    found = World([[*STEP * 4, *program] for program in programs]).run().snapshot()
    where = (Frame(SCRIPT, 30, "on_validation_end"),)
    bypass = Bypass(Frame(SCRIPT, 29, "on_validation_end"), guard, asks="rank" if "zero" in guard else "value")
    paths = {
        call.frames
        for rank in found.ranks
        for call in rank.collectives.recent
        if any(frame.line == 30 for frame in call.frames)
    }
    own = {tuple(frame for frame in frames if frame.file == SCRIPT) for frames in paths} or {where}
    return replace(found, call_sites=tuple(CallSite(frames, (bypass,)) for frames in own)) if guard else found


def test_a_call_of_one_rank_under_a_rank_guard() -> None:
    judgement = diagnose(job([TABLE, *ASKS], ASKS, guard="if not trainer.is_global_zero: return"))
    verdict = judgement.verdict
    assert (verdict.cause, verdict.certainty) == ("rank-zero-only-collective", Certainty.LIKELY)
    assert [(culprit.rank, culprit.where) for culprit in verdict.culprits] == [
        (0, Frame(SCRIPT, 30, "on_validation_end"))
    ]
    guard = "`if not trainer.is_global_zero: return` (train.py:29)"
    assert f"which rank 1 never made: it is behind {guard}; since then their calls are mispaired" in verdict.summary
    assert verdict.fix == "make that call on every rank: put the `return` at train.py:29 behind it"
    assert any("is_global_zero" in sentence for sentence in verdict.evidence)


def test_without_a_guard_two_ranks_leave_it_open_which_is_wrong() -> None:
    snapshot = job([TABLE, *ASKS], ASKS)
    found = extra_calls(Case(snapshot))
    assert found is not None
    assert (found.ranks, found.others, [call.op for call in found.calls]) == ((0,), (1,), ["barrier"])
    assert found.fits
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, verdict.certainty, verdict.culprits) == ("undetermined", Certainty.UNDETERMINED, ())
    assert "rank 0 calls barrier" in verdict.summary
    assert "rank 1 calls all_reduce" in verdict.summary


def test_most_ranks_say_it_without_the_source() -> None:
    found = extra_calls(Case(job(ASKS, [TABLE, *ASKS], ASKS)))
    assert found is not None
    assert (found.ranks, found.others) == ((1,), (0, 2))


def test_calls_of_one_place_that_differ_are_no_shift() -> None:
    other: list[Action] = [Call("barrier", line=40, function="fit"), Call("barrier", line=41, function="fit")]
    assert extra_calls(Case(job(ASKS, other))) is None


def test_what_is_paired_with_something_else_at_once_is_no_shift() -> None:
    assert extra_calls(Case(job([Call("broadcast", line=30), *ASKS], ASKS))) is None


@pytest.mark.parametrize("sides", [((0,), (1,)), ((0,), (1, 2))])
def test_of_two_ranks_the_one_that_synchronised_gradients_is_not_alone(
    sides: tuple[tuple[int, ...], tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDP does so on all ranks, or on none; most ranks without it may tell otherwise."""
    case = Case(job(ASKS, ASKS, ASKS))
    (asked, *_) = case.ledger.calls_in(1, "0")
    engine = Frame("/venv/lib/python3.12/site-packages/torch/autograd/graph.py", 841, "_engine_run_backward")
    gradients = replace(asked, op="all_reduce", frames=(engine, Frame(SCRIPT, 12, "main")))
    found = ExtraCalls(*sides, (gradients,), replace(asked, op="barrier", seq=1), fits=False)
    monkeypatch.setattr(before_a_common_call, "extra_calls", lambda case: found)
    assert (before_a_common_call.issued_before_a_common_call(case) is None) is (len(sides[1]) == 1)
