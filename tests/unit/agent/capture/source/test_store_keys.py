"""The keys of stores for which ranks wait, from the files on their stacks."""

from __future__ import annotations

from pathlib import Path

from hangwatch.model import Frame
from hangwatch_agent.capture.source.files import Sources
from hangwatch_agent.capture.source.store_keys import store_keys
from tests.unit.job import rank

NO_PROC = Path("/nonexistent")
SOURCE = """
def publish(store):
    if api_key == "hunter2hunter2":
        store.set("manifest", 1)


store.get("manifest")
"""


def test_ranks_that_stand_alike_share_one(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    stack = (Frame(str(file), 7, "<module>"),)
    (found,) = store_keys([rank(0, stack), rank(1, stack)], Sources(), NO_PROC)
    assert (found.key, found.frames, found.setters[0].where.line) == ("manifest", stack, 4)
    assert "hunter2" not in found.setters[0].conditions[0].text


def test_other_lines_ask_for_none(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    assert store_keys([rank(0, (Frame(str(file), 3, "publish"),))], Sources(), NO_PROC) == ()
    assert store_keys([rank(0, (Frame("/nonexistent/x.py", 3, "f"),))], Sources(), NO_PROC) == ()
