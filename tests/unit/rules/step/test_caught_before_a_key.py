"""An error that a rank caught, while all ranks wait for keys of a store."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.model import ExceptionFacts, Snapshot
from hangwatch.report.incident import snapshot_of
from scripts import judged

CAUGHT_ITS_ERROR, ANOTHER = 2, 3


def _stuck() -> Snapshot:
    return snapshot_of([judged.incident("p33-federated-swallowed-exception")])


def _with_errors(snapshot: Snapshot, rank: int, errors: tuple[ExceptionFacts, ...]) -> Snapshot:
    ranks = (
        replace(each, reading=replace(each.reading, caught=errors))
        if each.rank == rank and each.reading is not None
        else each
        for each in snapshot.ranks
    )
    return replace(snapshot, ranks=tuple(ranks))


def test_the_rank_whose_steps_ended_with_the_error_is_named() -> None:
    verdict = diagnose(_stuck()).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("exception-on-one-rank", [CAUGHT_ITS_ERROR])


def test_no_rank_needs_to_wait_in_a_collective() -> None:
    """All of them, the one that collects too, may wait for keys."""
    stuck = _stuck()
    client = next(each for each in stuck.ranks if each.rank == 1)
    ranks = (
        replace(each, stacks=client.stacks, earlier_stacks=client.earlier_stacks) if each.rank == 0 else each
        for each in stuck.ranks
    )
    verdict = diagnose(replace(stuck, ranks=tuple(ranks))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("exception-on-one-rank", [CAUGHT_ITS_ERROR])


def test_an_error_in_the_step_in_which_all_are_says_nothing() -> None:
    """Its rank has gone as far as the others, and waits for the key as they do."""
    stuck = _stuck()
    reading = next(each.reading for each in stuck.ranks if each.rank == CAUGHT_ITS_ERROR)
    assert reading is not None
    last = next(each.reading for each in stuck.ranks if each.rank == ANOTHER)
    assert last is not None
    errors = tuple(replace(each, step=last.progress.step) for each in reading.caught)
    without = _with_errors(stuck, CAUGHT_ITS_ERROR, ())
    assert diagnose(_with_errors(without, ANOTHER, errors)).verdict.cause == "undetermined"
