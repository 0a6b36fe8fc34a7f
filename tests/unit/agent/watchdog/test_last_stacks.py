"""What is known of a rank that its launcher ended: where it stood when it was last looked at."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from hangwatch.model import Frame, ProcessFacts, RankEvidence, ThreadStack
from hangwatch_agent.watchdog.last_stacks import SOURCE, LastStacks
from tests.unit.rules.step.worlds import data_parallel
from tests.unit.simulator import SCRIPT, World

STACK = (ThreadStack(1, "MainThread", (Frame(SCRIPT, 18, "upload"), Frame(SCRIPT, 35, "main")), main=True),)
AT = 100.0


def rank(code: int | None, *, moved_at: float = AT - 5.0, stacks: tuple[ThreadStack, ...] = ()) -> RankEvidence:
    """A rank that lives, or ended with `code`; its board last moved at `moved_at`."""
    snapshot = World([data_parallel(3), data_parallel(3)]).run().snapshot()
    found = next(each for each in snapshot.ranks if each.rank == 1)
    assert found.reading is not None
    reading = replace(found.reading, progress=replace(found.reading.progress, at=moved_at), phase_at=moved_at)
    process = ProcessFacts(found.pid or 0, "S" if code is None else "X", exit_code=code)
    return replace(found, reading=reading, process=process, stacks=stacks)


def after_a_look(ended: RankEvidence) -> tuple[ThreadStack, ...]:
    kept = LastStacks()
    assert kept.filled([rank(None, stacks=STACK)], AT)[0].stacks == STACK
    return kept.filled([ended], AT + 10.0)[0].stacks


def test_a_rank_that_its_launcher_ended_stood_where_it_was_seen_last() -> None:
    (stack,) = after_a_look(rank(-signal.SIGTERM))
    assert (stack.frames, stack.source) == (STACK[0].frames, SOURCE)


@pytest.mark.parametrize(
    "ended",
    [rank(-signal.SIGTERM, moved_at=AT + 3.0), rank(1), rank(-signal.SIGSEGV), rank(None)],
    ids=["its board moved since", "an error", "a crash", "it lives and was not looked at"],
)
def test_of_others_the_last_look_says_nothing(ended: RankEvidence) -> None:
    assert after_a_look(ended) == ()


@pytest.mark.parametrize(("code", "known"), [(-signal.SIGTERM, 0.7), (-signal.SIGSEGV, None)])
def test_whether_it_computed_is_known_of_one_that_its_launcher_ended(code: int, known: float | None) -> None:
    kept, living = LastStacks(), rank(None, stacks=STACK)
    assert living.process is not None
    kept.filled([replace(living, process=replace(living.process, cpu_delta_s=0.7))], AT)
    (ended,) = kept.filled([rank(code)], AT + 10.0)
    assert ended.process is not None
    assert ended.process.cpu_delta_s == known


def test_its_own_last_words_go_before() -> None:
    own = (replace(STACK[0], source="crash", frames=(Frame(SCRIPT, 40, "main"),)),)
    assert after_a_look(rank(-signal.SIGTERM, stacks=own)) == own
