"""Ranks that fail when the others have ended, for what they did many steps before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import Collective, Frame, Judgement, Progress, RankEvidence, Verdict
from tests.unit.job import NOW, SCRIPT, gone, judge
from tests.unit.rules.step.endings import DDP, failed

UPDATES = 600


def with_progress(entry: RankEvidence, **parts: Any) -> RankEvidence:
    assert entry.reading is not None
    return replace(entry, reading=replace(entry.reading, progress=Progress(calls=600, **parts)))


def job(step: int, forwards: int) -> Judgement:
    """Rank 0 fails in its last step; the others made 600 training forwards for 600 updates."""
    late = with_progress(failed(0, (DDP, 1, "forward")), step=step, optimizer_steps=UPDATES - 1, forwards=forwards)
    ended = [
        with_progress(gone(number, 0), step=UPDATES - 1, optimizer_steps=UPDATES, forwards=UPDATES) for number in (1, 2)
    ]
    return judge(late, *ended, world_size=3)


def test_a_rank_that_repeated_a_forward_before_is_not_left_by_an_early_end() -> None:
    verdict = job(UPDATES, UPDATES + 1).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("rank-local-decision", [0]), verdict.summary
    assert verdict.summary.startswith("Rank 0 made 1 training forward more than its updates need in earlier steps")


def test_forwards_of_an_evaluation_call_nothing() -> None:
    assert job(UPDATES - 1, UPDATES + 50).verdict.cause == "exit-destroy-asymmetric"


# ------------------------------------------------------------------------------------------ messages


def message(number: int, op: str, peer: int, time: float) -> Collective:
    line = 20 + number if op == "send" else 30 + number
    frames = (Frame(SCRIPT, line, "main"),)
    return Collective("0", 1, op, ((4,),), ("float32",), peer=peer, frames=frames, at=time)


def asks(times: int, last: str = "recv") -> tuple[Collective, ...]:
    """Rank 0 sends a request and takes the answer, again and again; `last` comes behind its last request."""
    turns = [message(0, op, 1, NOW - 60 + turn) for turn in range(times) for op in ("send", "recv")]
    return (*turns, *([message(0, "send", 1, NOW - 31)] if last == "recv" else []), message(0, "recv", 1, NOW - 30))


def with_calls(entry: RankEvidence, calls: tuple[Collective, ...]) -> RankEvidence:
    assert entry.reading is not None
    return replace(entry, reading=replace(entry.reading, calls=calls))


def told(calls: tuple[Collective, ...], more: int) -> Verdict:
    """Rank 1, which serves ranks 0 and 2, makes so many calls after rank 0 has come to its last receive."""
    waiting = with_calls(failed(0, (DDP, 1, "recv")), calls)
    server = with_calls(gone(1, 0), tuple(message(1, "send", 2, NOW - 29 + each) for each in range(more)))
    ended = [with_progress(entry, step=-1) for entry in (server, gone(2, 0))]
    return judge(waiting, *ended, world_size=3).verdict


def test_a_rank_that_went_on_for_long_without_an_answer_had_left_it_out() -> None:
    verdict = told(asks(8), 12)
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("point-to-point-deadlock", [1])
    assert verdict.summary.startswith("Rank 1 left out a send (train.py:21) to rank 0, which waited for it")


@pytest.mark.parametrize(("calls", "more"), [(asks(8), 2), (asks(8, last="once more"), 12), (asks(2), 12)])
def test_a_receive_that_is_no_habit_or_just_came_blames_no_sender(calls: tuple[Collective, ...], more: int) -> None:
    assert told(calls, more).cause != "point-to-point-deadlock"
