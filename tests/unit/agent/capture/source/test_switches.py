"""What the user's files set for a trainer, read from disk: files on the stacks, and those beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.model import Frame, RankEvidence, Switch
from hangwatch_agent.capture.source import programs
from hangwatch_agent.capture.source import switches as capture
from hangwatch_agent.capture.source.files import Sources
from tests.unit.job import rank

LOOP = "class Loop:\n    def run(self):\n        while not self.trainer.should_stop:\n            self.advance()\n"
STOPS = "def on_batch_end(trainer, loss):\n    if loss < 0.1:\n        trainer.should_stop = True\n"


@pytest.fixture
def stacks(tmp_path: Path) -> tuple[Frame, ...]:
    loop = tmp_path / "site-packages" / "trainer" / "loop.py"
    loop.parent.mkdir(parents=True)
    loop.write_text(LOOP)
    script = tmp_path / "work" / "train.py"
    script.parent.mkdir()
    script.write_text("trainer.fit()\n")
    return Frame(str(loop), 4, "run"), Frame(str(script), 1, "<module>")


def found(*ranks: RankEvidence, sources: Sources | None = None) -> list[tuple[str, str, int]]:
    told = capture.switches(ranks, sources or Sources(), Path("/nonexistent"))
    return [(each.name, Path(each.where.file).name, each.where.line) for each in told]


def test_a_callback_in_a_file_beside_the_program(stacks: tuple[Frame, ...], tmp_path: Path) -> None:
    (tmp_path / "work" / "callbacks.py").write_text(STOPS)
    (tmp_path / "work" / "notes.txt").write_text(STOPS)
    assert found(rank(0, stacks), rank(1, stacks)) == [("should_stop", "callbacks.py", 3)]


def test_without_a_package_no_folder_is_read(stacks: tuple[Frame, ...], tmp_path: Path) -> None:
    (tmp_path / "work" / "train.py").write_text(STOPS)
    assert found(rank(0, stacks[1:])) == []


def test_many_files_are_read_as_far_as_the_limit(
    stacks: tuple[Frame, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MOST_FILES", 3)
    for number in range(9):
        (tmp_path / "work" / f"c{number}.py").write_text(STOPS)
    assert found(rank(0, stacks)) == [("should_stop", "c0.py", 3), ("should_stop", "c1.py", 3)]


def test_a_file_server_that_hangs_costs_one_wait(stacks: tuple[Frame, ...]) -> None:
    assert found(rank(0, stacks), sources=Sources(stuck=True)) == []


def test_a_long_condition_is_clipped(stacks: tuple[Frame, ...], tmp_path: Path) -> None:
    (tmp_path / "work" / "train.py").write_text(
        STOPS.replace("loss < 0.1", "loss < 0.1 and " + "ready and " * 99 + "x")
    )
    told: tuple[Switch, ...] = capture.switches([rank(0, stacks)], Sources(), Path("/nonexistent"))
    assert len(told[0].condition) < 300
