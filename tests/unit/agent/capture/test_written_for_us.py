"""What a rank writes because it was asked is no work of its own: its answer, and its stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch_agent.capture.assemble import _of_its_own
from hangwatch_agent.capture.options import Target
from hangwatch_agent.shared.own_stacks import END, last_size, stacks_file
from tests.unit.job import rank

ANSWER, DUMP = "x" * 80_000, "Thread 0x1 (most recent call first):\n" + END


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A rank that was asked twice for its stacks, and whose last answer lies beside its board."""
    reading = rank(0).reading
    assert reading is not None
    found = Target(reading, tmp_path / "board")
    (tmp_path / f"collectives-{found.own_pid}.json").write_text(ANSWER)
    stacks_file(tmp_path, found.own_pid).write_text(f"61\nThread 0x2\n{END}{DUMP}")
    return found


@pytest.mark.parametrize("own", [0, 30])
@pytest.mark.parametrize("ours", [0, len(ANSWER), len(ANSWER) + len(DUMP)])
def test_the_answer_and_the_stacks_count_where_they_were_written_between_the_samples(
    own: int, ours: int, target: Target
) -> None:
    assert _of_its_own(own + ours, target) == own


def test_a_rank_that_has_not_answered_has_written_all_of_it_for_itself(tmp_path: Path, target: Target) -> None:
    assert _of_its_own(None, target) is None
    for path in tmp_path.iterdir():
        path.unlink()
    assert _of_its_own(len(ANSWER), target) == len(ANSWER)


def test_of_the_stacks_only_the_last_are_measured(tmp_path: Path, target: Target) -> None:
    path = stacks_file(tmp_path, target.own_pid)
    assert last_size(path) == len(DUMP)
    path.write_text("61\n")
    assert last_size(path) == 0
