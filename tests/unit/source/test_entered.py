"""What a thread has entered by `with`, and what it is entering."""

from __future__ import annotations

import ast
import textwrap

import pytest

from hangwatch.model import Frame
from hangwatch.source.entered import entered, entering

SOURCE = ast.parse(
    textwrap.dedent("""
    def record(self):
        with self.metrics_lock:
            self.steps += 1
            with state.weights_lock, open(path) as file:
                file.write(norm())
            with timer:
                pass
    def main():
        with run:
            record()
        with lock: record()
    """)
)


def at(*lines: int) -> list[tuple[Frame, ast.Module]]:
    return [(Frame("/home/ann/train.py", line, ""), SOURCE) for line in lines]


@pytest.mark.parametrize(
    ("lines", "inside", "ahead"),
    [
        ((5, 11), ("self.metrics_lock", "run"), ("state.weights_lock",)),
        ((6, 11), ("state.weights_lock", "self.metrics_lock", "run"), ()),
        ((4,), ("self.metrics_lock",), ()),
        ((3,), (), ("self.metrics_lock",)),
        ((11,), ("run",), ()),
        ((12,), (), ("lock",)),
        ((5, 12), ("self.metrics_lock", "lock"), ("state.weights_lock",)),
    ],
)
def test_the_blocks_around_a_line_and_the_one_that_begins_there(
    lines: tuple[int, ...], inside: tuple[str, ...], ahead: tuple[str, ...]
) -> None:
    assert (entered(at(*lines)), entering(at(*lines))) == (inside, ahead)
