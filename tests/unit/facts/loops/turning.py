"""A source with loops, and places in it."""

from __future__ import annotations

import ast
from textwrap import dedent

from hangwatch.model import Frame, LoopFacts
from hangwatch.source.loops import loop_around

SCRIPT = "/home/ann/train.py"
SOURCE = dedent(
    """\
    def train(steps):
        for step in range(steps):
            if bad():
                continue
            try:
                update()
            except ValueError:
                print("skipped")
            except RuntimeError:
                raise
            for part in parts:
                if part:
                    break
            if enough():
                break
            def helper():
                return 1
        return step

    def guarded():
        try:
            for batch in loader():
                update()
        except KeyboardInterrupt:
            pass
        except Exception as error:
            log(error)

    def fit():
        guarded_by_caller()
        with suppress(ValueError):
            while True:
                update()
                if over():
                    return

    for part in range(len(parts)):
        update()

    def stage():
        try:
            update()
        except Exception as error:
            log(error)
    """
)
TREE = ast.parse(SOURCE)


def loop(*lines: int) -> LoopFacts | None:
    """The loop around a stack with these lines, innermost first."""
    return loop_around([(Frame(SCRIPT, line, "f"), TREE) for line in lines])


def at(frames: tuple[Frame, ...]) -> list[int]:
    return [frame.line for frame in frames]
