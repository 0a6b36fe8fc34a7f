"""A send and a receive of different sizes, of which gloo aborts the receiver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Collective, ExceptionFacts, Frame, GroupHead, Job, Judgement, Snapshot
from tests.unit.job import NOW, SCRIPT
from tests.unit.rules.step.aborts import SIZES, dead, lost


def calls(op: str, peer: int, sizes: Sequence[int], line: int) -> tuple[Collective, ...]:
    """Two calls a step, in group 0."""
    at = Frame(SCRIPT, line, "main")
    return tuple(
        Collective("0", n + 1, op, ((size,),), ("Float",), peer=peer, tag=0, frames=(at,), at=NOW - 99 + n, step=n // 2)
        for n, size in enumerate(sizes)
    )


def judged(
    sent: Sequence[int],
    received: Sequence[int],
    *,
    recorded: int = 99,
    without: int = 99,
    error: ExceptionFacts | None = None,
    output: str = "",
) -> Judgement:
    """Rank 0 sends to rank 1, which ends in its last receive; their rings hold the last `recorded` calls.

    Rank 0 loses the connection, or ends with that `error`; `output` is the last one of rank 1.
    """
    sends = calls("send", 1, sent, 18)
    receives = calls("recv", 0, received, 20)
    receives = (*receives[:without], *receives[without + 1 :])
    sender, receiver = lost(0, sends[-recorded:]), dead(1, receives[-recorded:], last_output=output)
    heads = (
        GroupHead("0", (0, 1), "", "gloo", 0, -1, sent=len(sends)),
        GroupHead("0", (0, 1), "", "gloo", 0, -1, received=len(received)),
    )
    ranks = []
    for rank, head in zip((sender, receiver), heads, strict=True):
        assert rank.reading is not None
        exception = error if error is not None and rank is sender else rank.reading.exception
        reading = replace(rank.reading, heads=(head,), exception=exception)
        ranks.append(replace(rank, reading=reading, collectives=replace(rank.collectives, heads=(head,))))
    return diagnose(Snapshot(Job("j", "job", 2), NOW, tuple(ranks)))


@pytest.mark.parametrize("recorded", [99, 9])
def test_a_receive_of_a_new_size_names_its_rank(recorded: int) -> None:
    """GIVEN a record that holds all calls, or the last steps WHEN the last receive alone is of another size."""
    verdict = judged([48] * 13, [48] * 12 + [1], recorded=recorded).verdict
    assert (verdict.cause, verdict.certainty) == ("collective-mismatch", "likely"), verdict.summary
    assert "Rank 1 receives 1 element (train.py:20) from rank 0, which sent 48 elements (train.py:18)" in (
        verdict.summary
    )
    assert [(who.rank, who.where and who.where.line) for who in verdict.culprits] == [(1, 20)]


def test_a_send_of_a_new_size_names_its_rank() -> None:
    verdict = judged([48] * 12 + [50, 48], [48] * 13).verdict
    assert verdict.cause == "collective-mismatch"
    assert [(who.rank, who.where and who.where.line) for who in verdict.culprits] == [(0, 18)]


def test_where_both_sizes_are_new_no_rank_is_blamed() -> None:
    verdict = judged([48] * 12 + [50], [48] * 12 + [1]).verdict
    assert (verdict.cause, verdict.culprits) == ("collective-mismatch", ())


def test_calls_that_cannot_be_paired_show_nothing() -> None:
    """GIVEN rings without the first calls, and a step before the last that does not come out even."""
    verdict = judged([48] * 13, [48] * 12 + [1], recorded=9, without=8).verdict
    assert verdict.cause != "collective-mismatch"


@pytest.mark.parametrize(("output", "told"), [(SIZES, True), ("", False)])
def test_what_the_backend_says_counts_though_another_rank_failed_by_itself(output: str, *, told: bool) -> None:
    error = ExceptionFacts("ValueError", "no gradient", (Frame(SCRIPT, 18, "main"),), at=NOW - 12, fatal=True)
    verdict = judged([48] * 13, [48] * 12 + [1], error=error, output=output).verdict
    assert (verdict.cause == "collective-mismatch") is told, verdict.summary
