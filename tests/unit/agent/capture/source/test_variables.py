"""The variables of the environment that the user's files name."""

from __future__ import annotations

from pathlib import Path

from hangwatch.model import Frame, RankEvidence, ThreadStack
from hangwatch_agent.capture.source.files import Sources
from hangwatch_agent.capture.source.variables import named

DIGESTS = {"EVAL_EVERY": "aa", "SHELL": "bb", "HOME": "cc"}


def rank(number: int, file: Path) -> RankEvidence:
    return RankEvidence(number, stacks=(ThreadStack(1, "", (Frame(str(file), 3, "main"),), main=True),))


def asked(folder: Path, *ranks: RankEvidence, known: dict[int, dict[str, str]]) -> dict[int, dict[str, str]]:
    return named(ranks, known, Sources(), folder / "proc")


def test_a_variable_that_a_file_beside_the_program_names(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    train.write_text("from settings import every\n")
    (tmp_path / "settings.py").write_text("import os\nevery = int(os.environ.get('EVAL_EVERY', 10))\n# SHELL\n")
    ranks = [rank(0, train), rank(1, train)]
    found = asked(tmp_path, *ranks, known={0: DIGESTS, 1: {"SHELL": "bb"}})
    assert found == {0: {"EVAL_EVERY": "aa"}, 1: {}}


def test_without_a_file_that_can_be_read_none_is_named(tmp_path: Path) -> None:
    assert asked(tmp_path, rank(0, tmp_path / "gone.py"), known={0: DIGESTS}) == {0: {}}
