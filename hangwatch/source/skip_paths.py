"""What the source says of the ways past a call: how a turn of the loop can go on without it. Hints, and never proof.

A rank that has left out a call that all others made has left no trace of why. The source shows the ways that there are:
a `continue` before the call, a condition around it, a `return` on the way to it, an except clause that goes on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from hangwatch.model import Bypass, Frame
from hangwatch.source.decisions import asks, communicates, counts
from hangwatch.source.decorated import decoration
from hangwatch.source.guards import alike_on_all, asked_first, caches, has_call, rank_decorators
from hangwatch.source.loops import loops_around
from hangwatch.source.swallowed import always_ends, catches_errors, suppresses
from hangwatch.source.syntax import SCOPES, called, functions_of, holds, scope_of, within


class _Turn(NamedTuple):
    """What ends a turn of the loop, or a call of the function, in the module that holds it."""

    exits: type[ast.stmt]
    tree: ast.Module


class _Way(NamedTuple):
    line: int
    text: str
    test: ast.expr | None = None  # its condition
    of_turn: bool = False


_LEVELS = 2  # a turn of the loop around the call, and one of the loop around that


def ways_past(frames: Sequence[tuple[Frame, ast.Module]], hooks: int | None = None) -> tuple[Bypass, ...]:
    """The ways past the call at the innermost of the user's `frames` (each with its module), in their order.

    First those within the innermost loop around the call, then those within the next one, with `inner` false: they are
    ways only if the inner loop (over parameters, over parts of a batch) is a part of one step. Of what lies further out
    a condition on the rank alone is one: it leads past the call in any turn.

    `hooks` is how many of the frames a package has called, e.g. a trainer whose loop it may be: what lies outside of
    them is in a turn of that loop only where it has a loop of its own, and then what they show themselves comes first.
    """
    found: list[Bypass] = []
    level = 0
    for number, (frame, tree) in enumerate(frames):
        if number == hooks and (found or not _any_loop(frames[number:])):
            return tuple(found)
        scope = scope_of(tree, frame.line)
        for loop in (*loops_around(scope, frame.line), None):
            body: Sequence[ast.stmt] = loop.body if loop is not None else getattr(scope, "body", ())
            if not holds(body, frame.line):
                continue
            each = {
                (way.line, way.text): way
                for way in _ways(body, frame.line, _Turn(ast.Return if loop is None else ast.Continue, tree))
            }
            ways = [_bypass(frame, each[key], scope, tree, inner=level == 0) for key in sorted(each)]
            if number and (decorator := decoration((frame, tree), frames[number - 1])) is not None:
                ways = [_at_decorator(way, decorator, frames[number - 1][0]) for way in ways]
            found += [way for way in ways if level < _LEVELS or way.asks == "rank"]
            level += loop is not None
        found += [
            _bypass(frame, _Way(each.lineno, f"@{ast.unparse(each)}", each), scope, tree, inner=level == 0)
            for each in rank_decorators(scope)
        ]
        found += [
            Bypass(Frame(frame.file, each.lineno, frame.function), f"@{ast.unparse(each)}", level == 0, asks="value")
            for each in caches(scope)
        ]
    return tuple(found)


def _bypass(frame: Frame, way: _Way, scope: ast.AST, tree: ast.Module, *, inner: bool) -> Bypass:
    asked = asks(way.test, scope, tree) if way.test is not None else ""
    every = way.test is not None and asked == "alike" and counts(way.test)
    found = Bypass(Frame(frame.file, way.line, frame.function), way.text, inner, asked, way.of_turn, every)
    given = _given(way, scope)
    return (
        replace(found, given=replace(found.where, line=given.lineno), given_text=ast.unparse(given)) if given else found
    )


def _at_decorator(way: Bypass, decorator: ast.expr, wrapped: Frame) -> Bypass:
    """What a wrapper asks before it calls the function below its decorator: told at that decorator's line."""
    where = replace(wrapped, line=decorator.lineno)
    return replace(way, where=where, text=f"@{ast.unparse(decorator)}", given=way.where, given_text=way.text)


def _given(way: _Way, scope: ast.AST) -> ast.Assign | None:
    """The one assignment to the name for which a condition asks, if the name gets its value nowhere else.

    Not where it is handed to a call in a statement of its own before, such as an all_reduce, which may change it.
    """
    test = way.test.operand if isinstance(way.test, ast.UnaryOp) else way.test
    if not isinstance(test, ast.Name):
        return None
    inside = list(within(scope))
    bound = [each for each in inside if isinstance(each, ast.Name) and each.id == test.id and _is_bound(each)]
    made = [each for each in inside if isinstance(each, ast.Assign) and each.targets == bound]
    if len(made) != 1 or made[0].lineno >= way.line or isinstance(made[0].value, ast.Constant | ast.Name):
        return None
    alone = (each.value for each in inside if isinstance(each, ast.Expr) and made[0].lineno < each.lineno < way.line)
    handed = (part for call in alone if isinstance(call, ast.Call) for part in ast.walk(call))
    changed = any(isinstance(part, ast.Name) and part.id == test.id for part in handed)
    return None if changed else made[0]


def _is_bound(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store | ast.Del)


def _any_loop(frames: Sequence[tuple[Frame, ast.Module]]) -> bool:
    return any(loops_around(scope_of(tree, frame.line), frame.line) for frame, tree in frames)


def _ways(block: Sequence[ast.stmt], line: int, turn: _Turn) -> Iterator[_Way]:
    """The ways past `line` in the block that holds it, as deep as that is in one turn of one loop."""
    for statement in block:
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            yield from _through(statement, line, turn)
            return
        yield from _left_by(statement, turn.exits)


def _through(statement: ast.stmt, line: int, turn: _Turn) -> Iterator[_Way]:
    """The statement holds the line: it may be a condition, or swallow an error before the line is reached."""
    yield from _short_circuits(statement, line)
    if (
        isinstance(statement, ast.If)
        and not _is_in_test(statement, line, turn.tree)
        and not alike_on_all(statement.test)
    ):
        yield _Way(statement.lineno, f"if {ast.unparse(statement.test)}", statement.test)
    if isinstance(statement, ast.With) and suppresses(statement, turn.tree):
        yield _Way(statement.lineno, f"with {', '.join(ast.unparse(item) for item in statement.items)}")
    if isinstance(statement, ast.Try) and holds(statement.body, line):
        yield from (_Way(each.lineno, _handler_text(each)) for each in statement.handlers if _goes_on(each, turn.exits))
    if isinstance(statement, ast.If | ast.Try | ast.With | ast.AsyncWith):
        for part in _blocks(statement):
            if holds(part, line):
                yield from _ways(part, line, turn)


def _is_in_test(statement: ast.If, line: int, tree: ast.Module) -> bool:
    """The call at that line may be one of the condition itself: of `if get_rank() == 0: gather(x)` it is none."""
    if statement.test.lineno != line:
        return False
    asked = {called(node) for node in ast.walk(statement.test) if isinstance(node, ast.Call)}
    own = {function.name for function in functions_of(tree)}
    return not holds(statement.body, line) or not asked.isdisjoint(own) or any(map(communicates, asked))


def _short_circuits(statement: ast.stmt, line: int) -> Iterator[_Way]:
    """`ready and gather(x)`, `gather(x) if ready else x`: what comes first in an expression decides about its call.

    Not within the arguments of a call, which is made all the same; nor where what comes first calls something itself,
    which may be the call in question, or both ways do.
    """
    parts = (getattr(statement, name, None) for name in ("value", "test", "iter"))
    for node in (each for part in parts if isinstance(part, ast.expr) for each in _outside_of_calls(part)):
        asked = asked_first(node, line)
        both = isinstance(node, ast.IfExp) and has_call(node.body, line) and has_call(node.orelse, line)
        if asked is not None and not both and not any(isinstance(each, ast.Call) for each in ast.walk(asked)):
            yield _Way(node.lineno, ast.unparse(node), asked)


def _outside_of_calls(node: ast.expr) -> Iterator[ast.expr]:
    yield node
    if not isinstance(node, ast.Call | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _outside_of_calls(child)


def _blocks(statement: ast.If | ast.Try | ast.With | ast.AsyncWith) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for handler in getattr(statement, "handlers", ()):
        yield handler.body


def _left_by(node: ast.AST, exits: type[ast.stmt], when: str = "", test: ast.expr | None = None) -> Iterator[_Way]:
    """The `continue` or `return` statements in what stands before the call, with the condition right above them."""
    if isinstance(node, exits):
        turn = exits is ast.Continue
        yield _Way(node.lineno, when + ("continue" if turn else "return"), test, turn)
    if isinstance(node, SCOPES) or (exits is ast.Continue and isinstance(node, ast.For | ast.AsyncFor | ast.While)):
        return
    for child in ast.iter_child_nodes(node):
        above, asked = when, test
        if isinstance(node, ast.If):
            asked = node.test if child in node.body else ast.UnaryOp(ast.Not(), node.test)
            above = f"if {ast.unparse(asked)}: "
        elif isinstance(node, ast.ExceptHandler):
            above, asked = f"{_handler_text(node)}: ", None
        yield from _left_by(child, exits, above, asked)


def _goes_on(handler: ast.ExceptHandler, exits: type[ast.stmt]) -> bool:
    """After some error at least, the turn or the loop goes on: not in every case is it raised again."""
    leaves = (ast.Break, ast.Return) if exits is ast.Continue else (ast.Break,)
    return catches_errors(handler) and not any(isinstance(each, leaves) or always_ends(each) for each in handler.body)


def _handler_text(handler: ast.ExceptHandler) -> str:
    return f"except {ast.unparse(handler.type)}" if handler.type is not None else "except"
