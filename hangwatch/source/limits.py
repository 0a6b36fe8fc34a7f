"""Whether a loop comes to its end by itself, by its source: after a number of turns, with its items, or at a time.

A rank that naps in such a loop works something off, or gives up one day; in any other one it waits for what comes from
elsewhere. A hint: a number may be large, and items may have no end.
"""

from __future__ import annotations

import ast

from hangwatch.source.syntax import CLOCKS, SCOPES, called, ends, is_added_to, within

_GROWS = frozenset({"append", "appendleft"})  # by one item a turn; what a set adds may be in it
_WITHOUT_END = frozenset({"count", "cycle", "repeat", "iter"})  # iter(queue.get, None): until that comes


def ends_by_itself(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """`for part in parts`, `while time.monotonic() < deadline`, `while True` with `if tries > 9: raise`."""
    if not isinstance(loop, ast.While):
        return isinstance(loop, ast.For) and called(loop.iter) not in _WITHOUT_END
    parts = _parts(loop)
    clocks = {
        ast.unparse(target)
        for node in parts
        if isinstance(node, ast.Assign) and _asks_clock(node.value)
        for target in node.targets
    }
    return _limits(loop, loop.test, clocks, every=isinstance(loop.test, ast.BoolOp) and _is_or(loop.test)) or any(
        isinstance(node, ast.If) and _limits(loop, node.test, clocks) and any(map(_leaves, node.body)) for node in parts
    )


def _limits(loop: ast.While, test: ast.expr, clocks: set[str], *, every: bool = False) -> bool:
    """It compares a time, or something that the loop counts; with `every`, each part of it does."""
    if isinstance(test, ast.BoolOp):
        return (all if every else any)(_limits(loop, part, clocks) for part in test.values)
    if not isinstance(test, ast.Compare):
        return False
    return _asks_clock(test) or counts(loop, test) or any(ast.unparse(node) in clocks for node in _named(test))


def _is_or(test: ast.BoolOp) -> bool:
    return isinstance(test.op, ast.Or)


def _asks_clock(node: ast.AST) -> bool:
    return any(called(each) in CLOCKS for each in ast.walk(node))


def _leaves(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Break | ast.Return) or ends(statement)


def counts(loop: ast.While, test: ast.expr) -> bool:
    """`test` compares something that the loop counts: `while step < steps: ...; step += 1`. What `*=` makes of it is a
    value, such as a residual.

    A collection that the body appends to is counted by its length: `while len(tokens) < limit: tokens.append(token)`.
    """
    parts = _parts(loop)
    counted = {ast.unparse(node.target) for node in parts if is_added_to(node)}
    grown = {
        ast.unparse(node.func.value)
        for node in parts
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS
    }
    sized = {
        ast.unparse(node.args[0])
        for node in ast.walk(test)
        if isinstance(node, ast.Call) and called(node) == "len" and node.args
    }
    return not sized.isdisjoint(grown) or any(ast.unparse(node) in counted for node in _named(test))


def _named(test: ast.expr) -> list[ast.Name | ast.Attribute]:
    return [node for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute)]


def _parts(loop: ast.While) -> list[ast.AST]:
    """All that belongs to its body."""
    return [
        node for statement in loop.body if not isinstance(statement, SCOPES) for node in (statement, *within(statement))
    ]
