"""Ranks that left the order of calls which the others of their group kept, judged by their queues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.queues import assessed, departure_of
from hangwatch.judge import Case, diagnose
from hangwatch.model import (
    Bypass,
    CallSite,
    Collectives,
    Frame,
    LoopFacts,
    ProcessFacts,
    RankEvidence,
    Snapshot,
)
from hangwatch.rules.left_the_order import left_the_order
from hangwatch.rules.step.rank_zero_only_collective.out_of_order import behind_a_rank_check
from hangwatch.rules.step.skipped_collective.by_order import skipped_by_site
from tests.unit.rules.step.worlds import Program, changed, world
from tests.unit.simulator import SCRIPT, Call, Draw

GATHER, SCATTER, NEW = Call("all_gather", line=12), Call("reduce_scatter", line=14), Call("all_gather", line=30)
STEP: Program = [Draw(), GATHER, GATHER, SCATTER]
EVALUATES: Program = [Draw(), NEW, *STEP[1:]]
GUARD = Bypass(Frame(SCRIPT, 29, "main"), "if rank % 2 == 0", asks="rank")


def job(*evaluate: int, ranks: int = 4) -> Snapshot:
    """Ranks of which some evaluate ahead of the sixth step: they and the others are paired in silence for two calls."""
    return world(*([*STEP * 5, *(EVALUATES if rank in evaluate else STEP)] for rank in range(ranks)))


def guarded(snapshot: Snapshot, line: int) -> Snapshot:
    """A condition on the rank leads to the call of that line."""
    return replace(snapshot, call_sites=(CallSite((Frame(SCRIPT, line, "main"),), (GUARD,)),))


@pytest.mark.parametrize(("evaluate", "told"), [((1,), (1,)), ((0, 2), ()), ((0, 1, 2), ())])
def test_a_minority_is_named_and_of_two_halves_none(evaluate: tuple[int, ...], told: tuple[int, ...]) -> None:
    found = left_the_order(Case(job(*evaluate)))
    assert tuple(who.rank for who in (found.culprits if found is not None else ())) == told


@pytest.mark.parametrize(
    ("asks", "cause", "fix"),
    [("rank", "rank-zero-only-collective", "out of the condition"), ("check", "rank-local-decision", "alike")],
)
def test_a_lone_call_is_told_with_the_condition_that_leads_to_it(asks: str, cause: str, fix: str) -> None:
    way = replace(GUARD, text="if not active", asks=asks)
    found = left_the_order(Case(replace(job(1), call_sites=(CallSite((Frame(SCRIPT, 30, "main"),), (way,)),))))
    assert found is not None
    assert (found.cause, fix in found.fix) == (cause, True)
    assert "`if not active` (train.py:29) leads to that call." in found.details


@pytest.mark.parametrize("evaluate", [(0, 2), (0, 1, 2)])
def test_those_behind_a_rank_check_are_named_however_many_they_are(evaluate: tuple[int, ...]) -> None:
    verdict = diagnose(guarded(job(*evaluate), 30)).verdict
    assert verdict.cause == "rank-zero-only-collective"
    assert [(who.rank, who.where) for who in verdict.culprits] == [(rank, GUARD.where) for rank in evaluate]
    assert "alone called all_gather (train.py:30), where the others call all_gather (train.py:12)" in verdict.summary
    assert "the source asks for the rank at train.py:29 (`if rank % 2 == 0`)" in verdict.evidence


def test_calls_that_one_helper_makes_are_told_by_the_lines_at_which_their_paths_part() -> None:
    found = Case(guarded(job(0, 2), 30))
    queued = assessed(found).found
    assert queued is not None
    assert queued.departure is not None
    departure, helper = queued.departure, Frame(SCRIPT, 5, "gather")
    own, usual = (replace(call, frames=(helper, *call.frames)) for call in (departure.own, departure.usual))
    sites = (CallSite((helper, Frame(SCRIPT, 30, "main")), (GUARD,)),)
    case = Case(replace(found.snapshot, call_sites=sites))
    told = behind_a_rank_check(case, replace(departure, own=own, usual=usual))
    assert told is not None
    assert "all_gather (train.py:30), where the others call all_gather (train.py:12)" in told.summary


def test_a_rank_check_before_both_calls_tells_nothing() -> None:
    both = [CallSite((Frame(SCRIPT, line, "main"),), (GUARD,)) for line in (12, 30)]
    assert left_the_order(Case(replace(job(0, 2), call_sites=tuple(both)))) is None


def test_calls_that_all_make_now_and_then_are_not_new_and_of_two_ranks_none_is_named() -> None:
    usual: Program = [*STEP * 3, *EVALUATES, *STEP * 3]
    assert left_the_order(Case(world([*usual, *EVALUATES], [*usual, *STEP]))) is None


def test_ranks_that_made_a_call_as_often_as_ever_have_not_skipped_it() -> None:
    """GIVEN ranks 1 and 3 in the call after the one in which the others stand THEN they left out nothing before it."""
    case = Case(job(0, 2))
    place = sites_of(case).now(0)
    assert place is not None
    assert place.lines[0][1] == 12
    assert sites_of(case).made_as_often_as_ever(1, place)
    assert skipped_by_site(case) is None
    short = Case(world([*STEP * 5, *STEP], [*STEP * 5, Draw(), GATHER, SCATTER]))
    assert not sites_of(short).made_as_often_as_ever(1, place)


@pytest.mark.parametrize("counted", [False, True])
def test_a_rank_that_comes_to_a_call_after_as_many_rounds_as_ever_is_not_the_odd_one(counted: bool) -> None:
    """Rank 1 saves a checkpoint of its own where the others go on, or these have left theirs out: nothing tells it."""
    turn: Program = [*([Draw(0, 0)] if counted else []), GATHER, Call("all_reduce", line=16)]
    save: Program = [Call("barrier", line=42)]
    usual: Program = [*turn * 4, *save, *turn * 4, *turn]
    assert left_the_order(Case(world(usual, [*turn * 4, *save, *turn * 4, *save, *turn], usual))) is None


@pytest.mark.parametrize("leaves", [(Frame(SCRIPT, 11, "main"),), ()])
def test_calls_made_again_after_an_error_are_told_with_its_clause(leaves: tuple[Frame, ...]) -> None:
    """GIVEN a rank that makes the calls of its evaluation again THEN a loop around the clause tells why, if it is one
    that ends where all went well.
    """
    evaluate: Program = [GATHER, GATHER, Call("all_gather", line=12)]
    turn: Program = [Draw(), SCATTER]
    usual: Program = [*turn * 3, *evaluate]
    again: Program = [*usual * 3, *evaluate, Draw(), SCATTER]
    snapshot = world(*(again if rank == 1 else [*usual * 3, Draw(), SCATTER] for rank in range(3)))
    clause = Bypass(Frame(SCRIPT, 13, "main"), "except OSError", inner=False)
    loop = LoopFacts(Frame(SCRIPT, 11, "main"), outer=(Frame(SCRIPT, 9, "main"),), outer_leaves=(leaves,))
    site = CallSite((Frame(SCRIPT, 12, "main"),), (clause,), loop)
    snapshot = replace(snapshot, call_sites=(site,))
    said, found = (
        "probably after an error that is caught at `except OSError` (train.py:13)",
        left_the_order(Case(snapshot)),
    )
    assert found is not None
    assert (f"It was repeated, {said}." in found.summary) is bool(leaves)
    assert (said in diagnose(snapshot).verdict.summary) is bool(leaves)
    assert [(who.rank, who.where and who.where.line) for who in found.culprits] == [(1, 13 if leaves else 12)]


def _with_its_board(entry: RankEvidence) -> RankEvidence:
    """The board lists what the program issued from Python."""
    assert entry.reading is not None
    return replace(entry, reading=replace(entry.reading, calls=entry.collectives.recent))


def _without_a_record(entry: RankEvidence) -> RankEvidence:
    """Its process ended before torch's flight recorder was asked; its board is left."""
    ended = ProcessFacts(entry.pid or 0, "X", exit_code=-6)
    return replace(entry, collectives=Collectives(heads=entry.collectives.heads), process=ended, stacks=())


@pytest.mark.parametrize("ended", [0, 1])
def test_where_a_failed_rank_left_no_record_the_boards_of_all_are_compared(ended: int) -> None:
    turn: Program = [GATHER, SCATTER, Call("all_reduce", line=16)]
    snapshot = world([*turn * 6, *turn], [*turn * 6, *turn[1:]])
    for rank in range(2):
        snapshot = changed(snapshot, rank, _with_its_board)
    found = departure_of(Case(changed(snapshot, ended, _without_a_record)))
    assert found is not None
    assert (found.ranks, found.usual.op) == ((1,), "all_gather")


def test_below_a_trainer_the_users_line_is_named_and_the_trainers_tell_the_calls_apart() -> None:
    first, second = Call("all_reduce", line=52, trainer=12), Call("all_gather", line=52, trainer=14)
    usual: Program = [Draw(), first, second]
    snapshot = world(*([*usual * 5, *(usual if rank != 1 else [Draw(), second]), *usual] for rank in range(3)))
    found = left_the_order(Case(snapshot))
    assert found is not None
    assert "Rank 1 left out all_reduce 11" in found.summary
    assert "(strategy.py:12)" in found.summary
    assert [(who.rank, who.where and (who.where.file, who.where.line)) for who in found.culprits] == [(1, (SCRIPT, 52))]


THERE, BACK, GRADIENTS = Call("all_to_all", line=12), Call("all_to_all", line=20), Call("all_reduce", line=24)
LAYER = (THERE, THERE)
ROUNDS = Frame(SCRIPT, 11, "main")


def exchanges(rounds: int = 1) -> Program:
    """A step that sends tokens to experts in so many rounds, and the gradients back in as many."""
    return [Draw(), *LAYER * rounds, *(BACK, BACK) * rounds, GRADIENTS]


def another_round(loop: LoopFacts | None = None) -> Snapshot:
    """Rank 1 needs two rounds in the sixth step."""
    found = world(*([*exchanges() * 5, *exchanges(2 if rank == 1 else 1)] for rank in range(4)))
    frames = (Frame(SCRIPT, THERE.line, "main"),)
    return replace(found, call_sites=(CallSite(frames, (), loop),)) if loop is not None else found


def test_a_part_of_a_step_that_was_made_once_more_is_no_next_step() -> None:
    """By the order of calls alone rank 1 may have left out its backward, and be in its next step."""
    verdict = diagnose(another_round()).verdict
    assert verdict.cause == "uneven-steps"
    assert [who.rank for who in verdict.culprits] == [1]
    told = verdict.summary
    assert (
        "Rank 1 made 2 calls of the default group once more, from all_to_all 28 of the default group (train.py:12)"
        in told
    )


def test_the_loop_that_made_them_is_named_with_what_ends_it() -> None:
    loop = LoopFacts(ROUNDS, counted=True, outer=(Frame(SCRIPT, 8, "main"),), last=13)
    verdict = diagnose(another_round(loop)).verdict
    assert verdict.cause == "rank-local-decision"
    assert [(who.rank, who.where) for who in verdict.culprits] == [(1, ROUNDS)]
    assert "in the loop at train.py:11, which ends with what it goes through" in verdict.summary


def test_a_loop_that_tries_again_after_an_error_decides_nothing() -> None:
    loop = LoopFacts(ROUNDS, skips=(Frame(SCRIPT, 14, "main"),), outer=(Frame(SCRIPT, 8, "main"),), last=15)
    verdict = diagnose(another_round(loop)).verdict
    assert verdict.cause == "uneven-steps"
    assert "on a retry" in verdict.fix


@pytest.mark.parametrize("odd", [0, 1])
def test_calls_whose_number_changes_from_step_to_step_are_none_too_many(odd: int) -> None:
    """All make four in the sixth step, more than ever before, and one rank of two leaves the last of them out."""

    def step(times: int) -> Program:
        return [Draw(), *[GATHER] * times, SCATTER, GRADIENTS]

    before = [action for times in (2, 3, 2, 3, 2) for action in step(times)]
    found = world(*([*before, *step(3 if rank == odd else 4), *step(2)] for rank in range(2)))
    queued = assessed(Case(found)).found
    assert queued is None or queued.departure is None or not queued.departure.in_step
