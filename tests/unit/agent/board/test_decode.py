"""What a group's row and a step's entry say beyond counts, and what rows of an older writer leave out."""

from __future__ import annotations

from array import array

import pytest

from hangwatch_agent.board import decode
from hangwatch_agent.board import layout as b

ROW = [0, 0, True, "0", "0-1", "default_pg", "gloo"]


@pytest.mark.parametrize(
    ("more", "timeout_s"), [([], None), ([1800.0], 1800.0), ([None], None), ([-1], None), (["soon"], None)]
)
def test_a_groups_timeout(more: list[object], timeout_s: float | None) -> None:
    (slot,) = decode.slots([[*ROW, *more]])
    assert slot.head.timeout_s == timeout_s


@pytest.mark.parametrize(("word", "made"), [(0, None), (1, 0), (8, 7)])
def test_optimizer_steps_made_before_a_step(word: int, made: int | None) -> None:
    words = array("q", [0] * b.STEP_WORDS)
    words[b.S_OPTIMIZED] = word
    assert decode.step_entry(0, words.tobytes(), (), 0).optimizer_steps == made
