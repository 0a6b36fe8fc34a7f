"""The conditions in a turn of a loop, ahead of a line, under which gradients are computed or parameters updated."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from hangwatch.model import Condition, Frame
from hangwatch.source.decisions import asks
from hangwatch.source.loops import innermost_loop
from hangwatch.source.syntax import called, functions_of, scope_of, within

# What has a step() of its own besides: schedulers, profilers, environments, progress bars.
_OPTIMIZER = re.compile(r"(?<![a-z])opt(?:im(?:i[sz]ers?)?)?(?![a-z])|optimi[sz]er|scaler|engine")


def conditions_of_updates(frames: Sequence[tuple[Frame, ast.Module]]) -> tuple[Condition, ...]:
    """Those of the innermost loop around the user's `frames` (each with its module), in the order of the source.

    The frames are innermost first; in a function below that loop all that stands ahead of its line belongs to a turn.
    """
    found: list[Condition] = []
    for frame, tree in frames:
        scope = scope_of(tree, frame.line)
        loop = innermost_loop(scope, frame.line)
        functions = {each.name: each for each in functions_of(tree)}
        body = loop.body if loop is not None else getattr(scope, "body", [])
        found[:0] = [
            Condition(
                Frame(frame.file, each.lineno, frame.function),
                f"if {ast.unparse(each.test)}",
                asks(each.test, scope, tree),
            )
            for each in _ahead(body, frame.line)
            if _updates(each, functions)
        ]
        if loop is not None:
            break
    return tuple(found)


def _ahead(body: Sequence[ast.stmt], line: int) -> Iterator[ast.If]:
    """The conditions that end before `line`, at whatever depth of the same function."""
    for statement in body:
        for node in (statement, *within(statement)):
            if isinstance(node, ast.If) and (node.end_lineno or node.lineno) < line:
                yield node


def _updates(condition: ast.If, functions: Mapping[str, ast.AST]) -> bool:
    """Under it a backward or an update is called, there or in a function of the same module."""
    calls = [node for node in within(condition) if isinstance(node, ast.Call)]
    return any(map(is_update, calls)) or any(
        is_update(node) for call in calls for node in within(functions.get(called(call), ast.Pass()))
    )


def is_update(node: ast.AST) -> bool:
    """`loss.backward()`, `self.optimizer.step()`, `accelerator.backward(loss)`, `scaler.step(optimizer)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = ast.unparse(node.func.value).rpartition(".")[2].lower()
    return node.func.attr == "backward" or (node.func.attr == "step" and bool(_OPTIMIZER.search(owner)))
