"""The same asynchronous calls in another order, by a report of a real program."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.case import Case
from hangwatch.facts.differences.other_order import had_that_order, other_order
from hangwatch.model import RankEvidence, Snapshot
from hangwatch.report import snapshot_of
from scripts import judged


def taken() -> Snapshot:
    return snapshot_of([judged.incident("p45-overlap-in-another-order")])


def without_its_last_call(rank: RankEvidence) -> RankEvidence:
    recent, reading = rank.collectives.recent[:-1], rank.reading
    assert reading is not None
    calls = tuple(call for call in reading.calls if call.seq <= recent[-1].seq)
    collectives = replace(rank.collectives, recent=recent, open_calls=())
    return replace(rank, collectives=collectives, reading=replace(reading, calls=calls, open_calls=()))


def test_both_sides_and_how_often_each_order_came_before() -> None:
    case = Case(taken())
    found = other_order(case)
    assert found is not None
    assert {frozenset(side) for side in found.sides} == {frozenset({0, 2}), frozenset({1})}
    before = {side: had_that_order(case, side[0], calls) for side, calls in zip(found.sides, found.calls, strict=True)}
    assert before == {(0, 2): 24, (1,): 0}


def test_a_call_that_one_side_has_not_made_may_have_been_left_out() -> None:
    snapshot = taken()
    ranks = tuple(without_its_last_call(rank) if rank.rank == 1 else rank for rank in snapshot.ranks)
    assert other_order(Case(replace(snapshot, ranks=ranks))) is None
