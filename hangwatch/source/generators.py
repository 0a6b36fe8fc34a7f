"""Where a generator that a loop goes through ends by a value of the rank's own, and with it the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from hangwatch.model import Frame, LoopFacts
from hangwatch.source.decisions import asks
from hangwatch.source.loops import loops_around
from hangwatch.source.syntax import Function, called, functions_of, scope_of, within

_DRESSED = frozenset({"enumerate", "tqdm", "track", "zip", "islice"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def with_ends_of_items(loop: LoopFacts, tree: ast.Module) -> LoopFacts:
    """`loop`, of that module, with the lines where the user's generator that it goes through ends early as ways out.

    These are its `return` and the `break` of its loops around a `yield`, right below a condition that asks for a value:
    that there is no more data is no decision. Of several functions with that name none is known to be the one.
    """
    around = loops_around(scope_of(tree, loop.where.line), loop.where.line)
    name = next((_made_by(each) for each in around if each.lineno == loop.where.line), "")
    made = [each for each in functions_of(tree) if each.name == name]
    if len(made) != 1 or not _yields(made[0]):
        return loop
    ends = tuple(Frame(loop.where.file, line, name) for line in sorted(_ends(made[0], made[0], tree)))
    return replace(loop, leaves=loop.leaves + ends, of_items=ends)


def _made_by(loop: ast.For | ast.AsyncFor | ast.While) -> str:
    """The name of the function that gives it its items."""
    items = loop.iter if isinstance(loop, ast.For | ast.AsyncFor) else None
    while isinstance(items, ast.Call) and called(items) in _DRESSED and items.args:
        items = items.args[0]
    return called(items) if items is not None else ""


def _ends(node: ast.AST, function: Function, tree: ast.Module, *, in_loop: bool = False) -> Iterator[int]:
    """`in_loop`: a `break` at this place leaves a loop of the function's that yields."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and asks(child.test, function, tree) == "value":
            found = [*child.body, *child.orelse]
            yield from (each.lineno for each in found if isinstance(each, ast.Return))
            yield from (each.lineno for each in found if isinstance(each, ast.Break) and in_loop)
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case) and not isinstance(child, Function):
            inside = _yields(child) if isinstance(child, _LOOPS) else in_loop
            yield from _ends(child, function, tree, in_loop=inside)


def _yields(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in within(node))
