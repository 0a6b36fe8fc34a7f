"""A command that failed because a rank was aborted behind its program: said once, where no rank's program failed."""

from __future__ import annotations

import pytest

from hangwatch.model import Launched, Phase
from hangwatch_agent.watchdog.exit_words import aborted_at_exit
from tests.unit.agent.readings import rank_state


@pytest.mark.parametrize(
    ("phase", "code", "said"),
    [
        (Phase.FINALIZING, -6, True),
        (Phase.FINALIZING, 0, False),
        (Phase.FINALIZING, -15, False),
        (Phase.BACKWARD, -6, False),
        (Phase.FINALIZING, None, False),
    ],
)
def test_an_abort_counts_only_behind_the_program(phase: Phase, code: int | None, said: bool) -> None:
    launched = [Launched(0, 100, 1.0, exit_code=0), Launched(1, 101, 1.0, exit_code=code)]
    states = [rank_state(0, phase=Phase.FINALIZING), rank_state(1, phase=phase)]
    told = aborted_at_exit(launched, states)
    assert told.startswith("hangwatch: rank 1 was aborted (SIGABRT) at the exit") is said
    assert bool(told) is said
