"""Generators whose end by a value is the end of the loop that goes through them."""

from __future__ import annotations

from textwrap import dedent

import pytest

from hangwatch.model import Frame, ThreadStack
from hangwatch.source.hints import annotated

HOME = "/home/ann/train"
TRAIN = dedent(
    """\
    from batches import updates
    for epoch in range(9):
        for batch in enumerate(updates(model, data)):
            model(batch).backward()
    """
)


def ways(generator: str, train: str = TRAIN) -> list[tuple[str, int, str]]:
    """The ways out of the innermost loop around line 4 of `train`, where another file holds the generator."""
    files = {f"{HOME}/train.py": train, f"{HOME}/batches.py": dedent(generator)}
    stack = annotated(ThreadStack(1, "", (Frame(f"{HOME}/train.py", 4, "<module>"),), main=True), files.get)
    assert stack.loop is not None
    assert {way.where for way in stack.loop.ways_out} == set(stack.loop.leaves)
    return [(way.where.file.removeprefix(f"{HOME}/"), way.where.line, way.text) for way in stack.loop.ways_out]


def test_a_return_by_a_value_is_a_way_out_at_its_own_line() -> None:
    found = ways(
        """
        import torch


        # what is drawn again until the policy has moved too far


        def updates(model, data):
            for _ in range(4):
                yield from data
                if divergence(model, data) > 0.1:
                    return
        """
    )
    assert found == [("batches.py", 12, "if divergence(model, data) > 0.1: return")]


def test_a_break_of_its_loop_is_one_and_that_of_a_loop_that_yields_nothing_is_none() -> None:
    found = ways(
        """
        def updates(model, data):
            while True:
                for part in data:
                    if part.loss > 3:
                        break
                yield data
                if loss(data) < 0.1:
                    break
        """
    )
    assert found == [("batches.py", 9, "if loss(data) < 0.1: break")]


@pytest.mark.parametrize(
    "generator",
    [
        (
            "def updates(model, data):\n    for part in data:\n        if part is None:\n            return\n"
            "        yield part"
        ),
        "def updates(model, data):\n    return [part for part in data if part > 3]",
        (
            "def updates(model, data):\n    if loss(data) < 0.1:\n        return\n    yield 1\n\n\nclass A:\n"
            "    def updates(self):\n        yield 2"
        ),
    ],
    ids=["no more data", "no generator", "two of that name"],
)
def test_what_says_nothing_of_a_decision_is_no_way_out(generator: str) -> None:
    local = f"{generator}\n"
    lines = local.count("\n")
    train = local + dedent(
        """\
        for batch in updates(model, data):
            model(batch).backward()
        """
    )
    files = {f"{HOME}/train.py": train}
    frame = Frame(f"{HOME}/train.py", lines + 2, "<module>")
    stack = annotated(ThreadStack(1, "", (frame,), main=True), files.get)
    assert stack.loop is not None
    assert stack.loop.leaves == ()
