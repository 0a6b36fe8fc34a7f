"""Functions that end the process, called in a loop."""

from __future__ import annotations

from textwrap import dedent

import pytest

from hangwatch.model import Frame, ThreadStack
from hangwatch.source.hints import annotated

HOME = "/home/ann/train"
SHARDS = dedent(
    """\
    import sys

    class Shards:
        def require(self):
            if not self.left:
                sys.exit(0)
            return self.left.pop()

        def batches(self):
            yield self.require()
    """
)


def exits(train: str, shards: str = SHARDS) -> list[tuple[str, int, str]]:
    """Where the process may end in the loop around the last line of `train`."""
    files = {f"{HOME}/train.py": dedent(train), f"{HOME}/shards.py": shards}
    line = files[f"{HOME}/train.py"].rstrip().count("\n") + 1
    stack = annotated(ThreadStack(1, "", (Frame(f"{HOME}/train.py", line, "<module>"),), main=True), files.get)
    assert stack.loop is not None
    return [(place.file.removeprefix(f"{HOME}/"), place.line, place.function) for place in stack.loop.exits]


def test_an_exit_behind_calls_in_another_file_is_told_at_its_own_line() -> None:
    found = exits(
        """\
        from shards import Shards
        shards = Shards()
        for batch in shards.batches():
            train(batch)
        """
    )
    assert found == [("shards.py", 6, "require")]


def test_an_exit_of_the_loop_itself_is_enough() -> None:
    found = exits(
        """\
        from shards import Shards
        for batch in Shards().batches():
            if bad(batch):
                raise SystemExit
            train(batch)
        """
    )
    assert found == [("train.py", 4, "<module>")]


@pytest.mark.parametrize(
    "shards",
    [
        SHARDS.replace("sys.exit(0)", "raise ValueError"),
        SHARDS + "\ndef require():\n    pass\n\nclass Other:\n    def batches(self):\n        yield 1\n",
    ],
    ids=["an error", "two of that name"],
)
def test_what_may_not_end_the_process_is_no_exit(shards: str) -> None:
    train = "from shards import Shards, Other\nfor batch in Shards().batches():\n    train(batch)\n"
    assert exits(train, shards) == []
