"""What a group's row and a step's entry say beyond counts, and what rows of an older writer leave out."""

from __future__ import annotations

from array import array

import pytest

from hangwatch.model import StepEntry
from hangwatch_agent.board import decode
from hangwatch_agent.board import layout as b

ROW = [0, 0, True, "0", "0-1", "default_pg", "gloo"]


@pytest.mark.parametrize(
    ("more", "timeout_s"), [([], None), ([1800.0], 1800.0), ([None], None), ([-1], None), (["soon"], None)]
)
def test_a_groups_timeout(more: list[object], timeout_s: float | None) -> None:
    (slot,) = decode.slots([[*ROW, *more]])
    assert slot.head.timeout_s == timeout_s


def entry_of(**words: int) -> StepEntry:
    found = array("q", [0] * b.STEP_WORDS)
    for name, word in words.items():
        found[getattr(b, name)] = word
    return decode.step_entry(0, found.tobytes(), (), 0)


def test_optimizer_steps_made_before_a_step() -> None:
    assert entry_of(S_OPTIMIZED=7).optimizer_steps == 7


@pytest.mark.parametrize(("word", "step"), [(0, None), (1, 0), (8, 7)])
def test_the_newest_steps_with_a_backward_and_with_a_forward_that_is_not_synchronised(
    word: int, step: int | None
) -> None:
    entry = entry_of(S_BACKWARD=word, S_ACCUMULATED=word)
    assert (entry.backward_step, entry.accumulated_step) == (step, step)
