"""Collectives that the backward of some ranks repeats, by a report of a real program."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.calls.recomputed import recomputed_alone
from hangwatch.facts.case import Case
from hangwatch.model import Snapshot
from hangwatch.report import snapshot_of
from scripts import judged


def taken() -> Snapshot:
    return snapshot_of([judged.incident("p45-checkpointed-on-one-rank")])


def test_the_rank_that_repeats_a_call_in_its_backward_and_the_line_that_asks_for_it() -> None:
    found = recomputed_alone(Case(taken()))
    assert found is not None
    assert (found.ranks, found.others) == ((2,), (0, 1))
    assert (found.line.line if found.line else 0, found.where.line if found.where else 0) == (24, 50)


def test_where_all_ranks_repeat_it_nothing_differs() -> None:
    snapshot = taken()
    alike = snapshot.ranks[2].collectives
    everywhere = tuple(replace(rank, collectives=alike) for rank in snapshot.ranks)
    assert recomputed_alone(Case(replace(snapshot, ranks=everywhere))) is None
