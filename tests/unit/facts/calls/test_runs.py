"""A run of equal calls that one rank ended before the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.calls.runs import went_on
from hangwatch.facts.case import Case
from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Frame, LoaderFacts, RankEvidence, Snapshot
from tests.unit.rules.step.worlds import Program, changed, world
from tests.unit.simulator import SCRIPT, Call, blamed_ranks

GATHER = Call("all_gather", line=20)  # of each forward of a validation
TRAIN: Program = [Call("all_gather", line=17), Call("reduce_scatter", line=18)]


def _validated(*batches: int) -> Snapshot:
    """After three steps each rank validates so many batches, and goes on with the next step."""
    return world(*([*TRAIN * 3, *[GATHER] * count, *TRAIN * 3] for count in batches))


def test_the_rank_with_fewer_turns_is_told_though_the_calls_differ_in_kind_only_later() -> None:
    snapshot = _validated(6, 6, 3)
    found = went_on(Case(snapshot))
    assert found is not None
    assert (found.ranks, found.others, found.seq, found.made) == ((2,), (0, 1), 10, 3)
    judgement = diagnose(snapshot)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [2])
    fewer = "Rank 2 made fewer calls of all_gather (8 elements, float32) (train.py:20) than ranks 0-1"
    assert fewer in judgement.verdict.summary


@pytest.mark.parametrize("batches", [(6, 3), (6, 6, 3, 3)])
def test_of_two_halves_neither_is_said_to_have_made_too_few(batches: tuple[int, ...]) -> None:
    assert "made fewer calls of" not in diagnose(_validated(*batches)).verdict.summary


def test_a_new_call_may_be_one_too_many() -> None:
    usual = [*TRAIN, *[GATHER] * 4]
    odd = [*TRAIN, GATHER, GATHER, Call("broadcast", line=50), GATHER]
    assert went_on(Case(world(usual, usual, odd))) is None


def test_calls_that_take_turns_are_no_run() -> None:
    one, other = Call("all_gather", line=20), Call("all_reduce", line=21)
    assert went_on(Case(world([one, other] * 4, [one, other] * 4, [*[one, other] * 3, other, one]))) is None


@pytest.mark.parametrize("culprit", [0, 2])
def test_the_rank_with_one_turn_more_is_told_whatever_each_turn_carries(culprit: int) -> None:
    """A gather for each table, whose lengths and bytes differ; one rank has a table more than the others."""

    def saved(tables: int) -> Program:
        gathers = [Call("all_gather", line=20, size=size) for _ in range(tables) for size in (1, 28)]
        return [*TRAIN * 3, *gathers, *TRAIN * 3]

    snapshot = world(*(saved(4 if rank == culprit else 3) for rank in range(3)))
    verdict = diagnose(snapshot).verdict
    cause = "rank-local-decision" if culprit else "rank-zero-only-collective"
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == (cause, [culprit])
    assert "made more calls of all_gather (1 element, float32) (train.py:20) than ranks" in verdict.summary
    assert any("most ranks of the default group that came to it call" in sentence for sentence in verdict.evidence)


def test_of_two_halves_neither_is_said_to_have_made_too_many() -> None:
    assert "made more calls of" not in diagnose(_validated(6, 3)).verdict.summary


def _counting_its_batches(began: int, *, trainer: bool = True) -> Snapshot:
    """Rank 1 validates 3 batches and rank 0 six, of 10; rank 1 trains in epoch `began` then. The iterators are kept."""
    fit = Frame("/venv/lib/python3.12/site-packages/trainer/loops.py", 117, "advance")

    def change(entry: RankEvidence) -> RankEvidence:
        drawn, epoch = (3, began) if entry.rank == 1 else (4, 0)
        loaders = (LoaderFacts(0, 10, epoch=epoch, drawn=3), LoaderFacts(1, 10, epoch=0, drawn=drawn, training=False))
        reading = replace(entry.reading, loaders=loaders) if entry.reading is not None else None
        stacks = tuple(replace(stack, frames=(*stack.frames[:-1], *[fit] * trainer)) for stack in entry.stacks)
        return replace(entry, reading=reading, stacks=stacks, earlier_stacks=stacks)

    return changed(changed(_validated(6, 3), 0, change), 1, change)


@pytest.mark.parametrize(("trainer", "cause"), [(True, "uneven-steps"), (False, "early-exit")])
def test_a_rank_that_trains_again_has_ended_the_loop_whose_iterator_it_keeps(trainer: bool, cause: str) -> None:
    judgement = diagnose(_counting_its_batches(1, trainer=trainer))
    assert (judgement.verdict.cause, judgement.verdict.certainty) == (cause, "likely")
    assert blamed_ranks(judgement) == [1]
    assert "rank 1 drew 3 of 10 batches there, and rank 0 4 so far" in judgement.verdict.evidence


def test_a_rank_that_may_still_be_in_the_loop_has_not_ended_it() -> None:
    assert blamed_ranks(diagnose(_counting_its_batches(0))) != [1]


LAYER, BACKWARD = Call("all_gather", line=25), Call("all_gather", line=41)  # of sharded layers, alike in size


def _sharded(*layers: int) -> Program:
    """Steps with so many layers each: their gathers in forward, and again in backward with a reduction of each."""
    steps = [[*[LAYER] * n, *[BACKWARD] * 2, *[Call("reduce_scatter", line=41), BACKWARD] * (n - 1)] for n in layers]
    return [call for step in steps for call in step]


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_the_one_that_cut_its_usual_run_short_is_told(culprit: int) -> None:
    """Where they part, calls of forward and backward are alike in kind and size, and later ones by chance in place."""
    programs = [_sharded(4, 4, 4, 3 if rank == culprit else 4, 4) for rank in range(2)]
    snapshot = world(*programs)
    found = went_on(Case(snapshot))
    assert found is not None
    assert (found.ranks, found.made) == ((culprit,), 3)
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("skipped-collective", [culprit])
    assert f"in earlier rounds rank {culprit} called all_gather (8 elements, float32) (train.py:25) there too" in (
        verdict.evidence
    )


def test_runs_of_different_lengths_say_nothing_of_two_ranks() -> None:
    snapshot = world(_sharded(4, 3, 4, 4, 4), _sharded(4, 3, 4, 3, 4))
    assert not diagnose(snapshot).verdict.culprits


@pytest.mark.parametrize(("drawn", "named"), [((6, 6, 6), True), ((6, 6, 3), False)])
def test_the_condition_past_one_call_of_the_run_is_told_where_the_turns_are_known_to_be_equal(
    drawn: tuple[int, ...], named: bool
) -> None:
    """Fewer batches explain fewer calls as well as a condition does."""
    way = Bypass(Frame(SCRIPT, 19, "main"), "if found", asks="check")
    snapshot = replace(_validated(6, 6, 3), call_sites=(CallSite((Frame(SCRIPT, 20, "main"),), (way,)),))
    for rank, count in enumerate(drawn):
        loader = LoaderFacts(1, None, epoch=0, drawn=count, training=False)
        snapshot = changed(snapshot, rank, lambda entry, loader=loader: _with(entry, loader))  # type: ignore[misc]
    verdict = diagnose(snapshot).verdict
    assert ("probably at train.py:19 (`if found`)" in verdict.summary) is named
    if named:
        assert verdict.culprits[0].where == way.where
        assert any("no other way for one rank to pass that call" in sentence for sentence in verdict.evidence)


def _with(entry: RankEvidence, loader: LoaderFacts) -> RankEvidence:
    assert entry.reading is not None
    return replace(entry, reading=replace(entry.reading, loaders=(*entry.reading.loaders, loader)))
