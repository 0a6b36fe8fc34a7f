"""Calls that differ since a hash decides about them, as in a loop over a set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import CallSite, Frame, Hashed, RankEvidence, Snapshot
from tests.unit.rules.step.worlds import Groups, Program, changed, world
from tests.unit.simulator import SCRIPT, Call, Draw

SET = Hashed(Frame(SCRIPT, 10, "main"), "for name in self.dirty")
SAID = "`for name in self.dirty` (train.py:10) goes by hashes, which differ from process to process, but for numbers."
HALVES: Groups = {"1": [(0, 1)], "2": [(0, 1)]}


def told(snapshot: Snapshot) -> Snapshot:
    """The source says that the loop around line 12 goes through a set."""
    return replace(snapshot, call_sites=(CallSite((Frame(SCRIPT, 12, "main"),), (), hashed=SET),))


def seeded(seed: str) -> Snapshot:
    """Three ranks in one line, of which one calls another operation, and their PYTHONHASHSEED."""
    turn: Program = [Draw(), Call("all_reduce", line=14)]
    calls = [Call("broadcast" if rank else "all_gather", line=12) for rank in range(3)]
    snapshot = told(world(*([*turn * 3, Draw(), call] for call in calls)))

    def with_seed(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        identity = replace(entry.reading.identity, environment={"PYTHONHASHSEED": seed} if seed else {})
        return replace(entry, reading=replace(entry.reading, identity=identity))

    for rank in range(3):
        snapshot = changed(snapshot, rank, with_seed)
    return snapshot


@pytest.mark.parametrize(("seed", "named"), [("", True), ("random", True), ("0", False)])
def test_no_rank_is_the_odd_one_where_a_hash_decides_and_none_decides_with_a_common_seed(
    seed: str, named: bool
) -> None:
    verdict = diagnose(seeded(seed)).verdict
    assert verdict.cause == "collective-mismatch"
    assert (SAID in verdict.summary) is named
    assert ([who.rank for who in verdict.culprits] == [0, 1, 2]) is named
    assert ("sorted(...)" in verdict.fix) is named


def test_groups_that_are_taken_in_the_order_of_a_set() -> None:
    turn: Program = [Draw(), Call(line=12, group="1"), Call(line=12, group="2")]
    other: Program = [Draw(), Call(line=12, group="2"), Call(line=12, group="1")]
    verdict = diagnose(told(world([*turn * 4], [*turn * 3, *other], groups=HALVES))).verdict
    assert verdict.cause == "group-order-cycle"
    assert SAID in verdict.summary
    assert [(who.rank, who.where and who.where.line) for who in verdict.culprits] == [(0, 10), (1, 10)]
