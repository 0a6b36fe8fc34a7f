"""`rank-local-decision`: two calls under one number, of which a condition leads to one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import Case, diagnose
from hangwatch.model import Bypass, CallSite, Frame, Snapshot
from hangwatch.rules.step.rank_local_decision.at_a_mismatch import decided_at_a_mismatch
from tests.unit.rules.step.worlds import Program, world
from tests.unit.simulator import SCRIPT, Call

FLUSH, LOG = Call("gather", line=22), Call("all_reduce", line=46)
FULL = Bypass(Frame(SCRIPT, 21, "main"), "if buf.full()", asks="value")
EVERY = Bypass(Frame(SCRIPT, 45, "main"), "if i % 100 == 99", asks="alike", counts=True)


def flushed(*full: int, before: bool = True, ways: tuple[Bypass, ...] = (FULL,)) -> Snapshot:
    """Without steps: the ranks log every so often and flush what is full; in the end the buffers of some are."""
    usual: Program = [LOG, LOG, *([FLUSH] if before else []), LOG]
    snapshot = world(*([*usual, FLUSH if rank in full else LOG, LOG] for rank in range(3)))
    sites = (CallSite((Frame(SCRIPT, 22, "main"),), ways), CallSite((Frame(SCRIPT, 46, "main"),), (EVERY,)))
    return replace(snapshot, call_sites=sites)


@pytest.mark.parametrize(("full", "odd"), [((1,), 1), ((0, 2), 1)])
def test_the_condition_of_the_one_call_is_named_with_the_fewer_ranks(full: tuple[int, ...], odd: int) -> None:
    found = decided_at_a_mismatch(Case(flushed(*full)))
    assert found is not None
    assert [(who.rank, who.where and who.where.line) for who in found.culprits] == [(odd, 21)]
    assert found.summary.startswith("`if buf.full()` (train.py:21) came out differently on the ranks: ")
    assert diagnose(flushed(*full)).verdict.cause == found.cause == "rank-local-decision"


def _told(snapshot: Snapshot) -> bool:
    return decided_at_a_mismatch(Case(snapshot)) is not None


def test_nothing_is_decided_where_both_calls_or_none_are_behind_a_condition_of_a_ranks_own() -> None:
    assert not _told(flushed(1, ways=()))
    both = flushed(1)
    other = CallSite((Frame(SCRIPT, 46, "main"),), (replace(FULL, where=Frame(SCRIPT, 44, "main")),))
    assert not _told(replace(both, call_sites=(both.call_sites[0], other)))


def test_a_check_says_nothing_where_counters_may_differ() -> None:
    assert not _told(flushed(1, ways=(replace(FULL, asks="check"),)))


def test_ranks_that_parted_before_are_at_other_points_of_the_program() -> None:
    """Rank 1 calls from another line three calls before, which was paired in silence."""
    other = Call("all_reduce", line=50)
    usual: Program = [LOG, LOG, FLUSH, LOG, LOG, LOG]
    odd: Program = [LOG, LOG, FLUSH, other, LOG, LOG]
    programs = ([*(odd if rank == 1 else usual), FLUSH if rank == 1 else LOG] for rank in range(3))
    sites = flushed(1).call_sites
    assert not _told(replace(world(*programs), call_sites=sites))
