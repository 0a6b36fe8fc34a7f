"""How long steps take, by which patience is measured."""

from __future__ import annotations

from hangwatch_agent.board import layout as b
from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.rank.groups import Groups
from hangwatch_agent.rank.steps import WARM, Steps

SECOND = 1_000_000_000


def test_the_first_steps_which_compile_are_no_measure_of_later_ones() -> None:
    board = BoardWriter()
    steps, now, told = Steps(board, Groups(board)), SECOND, []
    for took in [20.0, 6.0, *[0.5] * WARM]:
        steps.begin(0, 0, 0, now)
        now += int(took * SECOND)
        steps.publish()
        told.append(board.words[b.W_SLOWEST_NS] / SECOND)
    assert told[1] == told[WARM - 1] == 20.0
    assert told[-1] == 0.5


def test_a_slow_step_among_the_later_ones_is() -> None:
    board = BoardWriter()
    steps, now = Steps(board, Groups(board)), SECOND
    for took in [*[0.5] * 2 * WARM, 9.0, 0.5, 0.5]:
        steps.begin(0, 0, 0, now)
        now += int(took * SECOND)
        steps.publish()
    assert board.words[b.W_SLOWEST_NS] == 9 * SECOND


def test_a_pause_among_the_first_steps_is_no_step() -> None:
    board = BoardWriter()
    steps, now = Steps(board, Groups(board)), SECOND
    for _ in range(4):  # epochs of three steps, with a validation of a minute behind each
        for _ in range(3):
            steps.begin(0, 0, 0, now)
            now += SECOND
        steps.paused()
        now += 60 * SECOND
    steps.publish()
    assert steps.count > WARM
    assert board.words[b.W_SLOWEST_NS] == SECOND


def test_steps_that_were_taken_back_were_not_the_first_ones() -> None:
    board = BoardWriter()
    steps, now = Steps(board, Groups(board)), SECOND
    for _ in range(2 * WARM):
        steps.begin(0, 0, 0, now)
        now += SECOND
    steps.take_back(0)
    for took in [20.0, 6.0, *[0.5] * WARM]:
        steps.begin(0, 0, 0, now)
        now += int(took * SECOND)
    steps.publish()
    assert board.words[b.W_SLOWEST_NS] == SECOND // 2
