"""The words of the diagnosis itself."""

from __future__ import annotations

import pytest

from hangwatch import words


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "how is not known"),
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "killed by SIGKILL"),
        (-50, "killed by signal 50"),
    ],
)
def test_how_a_process_ended(code: int | None, said: str) -> None:
    assert words.ended(code) == said
