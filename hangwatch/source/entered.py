"""The `with` statements on the way to a line of the user's: what a thread has entered, and what it is entering."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from hangwatch.model import Frame
from hangwatch.source.syntax import holds, scope_of, within

_NAMES_TOLD = 8  # names of each


def entered(frames: Sequence[tuple[Frame, ast.Module]]) -> tuple[str, ...]:
    """The names of what the `with` blocks around the user's `frames` hold, the innermost first: `self.lock`, `lock`."""
    found = (
        name
        for number, (frame, tree) in enumerate(frames)
        for node in reversed(list(_withs(tree, frame.line)))
        if holds(node.body, frame.line) and not (number == 0 and _on_one_line(node))
        for name in _names(node)
    )
    return tuple(dict.fromkeys(found))[:_NAMES_TOLD]


def entering(frames: Sequence[tuple[Frame, ast.Module]]) -> tuple[str, ...]:
    """The names in the head of the `with` statement at the innermost of them; none where that line is another one.

    One that is written on one line may be entered already: its body is short.
    """
    for frame, tree in frames[:1]:
        heads = [n for n in _withs(tree, frame.line) if not holds(n.body, frame.line) or _on_one_line(n)]
        return tuple(name for node in heads for name in _names(node))[:_NAMES_TOLD]
    return ()


def _on_one_line(node: ast.With) -> bool:
    return node.lineno == node.end_lineno


def _withs(tree: ast.Module, line: int) -> Iterator[ast.With]:
    for node in within(scope_of(tree, line)):
        if isinstance(node, ast.With) and node.lineno <= line <= (node.end_lineno or node.lineno):
            yield node


def _names(node: ast.With) -> Iterator[str]:
    """Of names and attributes alone: what a call gives, such as open(), is another thing each time."""
    for item in node.items:
        if isinstance(item.context_expr, ast.Name | ast.Attribute):
            yield ast.unparse(item.context_expr)
