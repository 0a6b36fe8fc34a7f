"""What in the source follows from the hash of a value: the order of a set, and what `hash()` gives.

Python salts the hashes of strings, in each process otherwise: what follows from them differs from rank to rank.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from hangwatch.model import Frame, Hashed
from hangwatch.source.imports import at_its_origin
from hangwatch.source.loops import loops_around
from hangwatch.source.sets import KEEP_ORDER, is_set, made
from hangwatch.source.syntax import IMPORTED, Function, called, functions_of, holds, scope_of, within

_VIEWS = frozenset({"items", "keys", "values"})
_FILLS = frozenset({"append", "add", "setdefault", "update", "extend"})
_DEPTH = 6  # names, arguments and functions that are followed back to what gave them their order


@dataclass(frozen=True)
class _Place:
    """A function on the way to the call: what gives its parameters their values, where that is known."""

    frame: Frame
    tree: ast.Module
    scope: ast.AST
    given: Mapping[str, tuple[ast.expr, _Place]]


def by_hash(frames: Sequence[tuple[Frame, ast.Module]]) -> Hashed | None:
    """The innermost line on the way to a call by the user's `frames` that goes through a set, or asks for a hash.

    Of the frames that lead to the function with the call, a loop counts where it hands on what it goes through.
    """
    for depth, (frame, tree) in enumerate(frames):
        scope = scope_of(tree, frame.line)
        for loop in loops_around(scope, frame.line):
            if not isinstance(loop, ast.For) or (depth and not _hands_on(_statement(scope, frame.line), loop.target)):
                continue
            if (found := _through(loop, _place(frames[depth:]), 0)) is not None:
                return found
        if not depth and (found := _asked(scope, frame, tree)) is not None:
            return found
    return None


def _place(frames: Sequence[tuple[Frame, ast.Module]]) -> _Place:
    """The innermost of these frames, with what the one around it passes."""
    frame, tree = frames[0]
    scope = scope_of(tree, frame.line)
    if len(frames) < 2 or not isinstance(scope, Function):
        return _Place(frame, tree, scope, {})
    around = _place(frames[1:])
    heads = _heads(_statement(around.scope, around.frame.line))
    calls = [node for part in heads for node in ast.walk(part) if called(node) == scope.name]
    return _Place(frame, tree, scope, _given(calls[0], scope, around) if len(calls) == 1 else {})


def _given(call: ast.AST, function: Function, around: _Place) -> dict[str, tuple[ast.expr, _Place]]:
    """The parameters of `function` with the arguments of that call, made in `around`."""
    if not isinstance(call, ast.Call):
        return {}
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    passed = [*zip(names, call.args, strict=False), *((each.arg, each.value) for each in call.keywords if each.arg)]
    return {name: (value, around) for name, value in passed if not isinstance(value, ast.Starred)}


def _through(loop: ast.For | ast.comprehension, place: _Place, depth: int) -> Hashed | None:
    """Where a set gives the order in which `loop` goes: in its own head, or where its items were put in order."""
    if is_set(loop.iter, place.scope, place.tree):
        return _told(f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}", loop.target, place)
    return _ordered(loop.iter, place, depth)


def _told(text: str, node: ast.expr, place: _Place) -> Hashed:
    return Hashed(at_its_origin(replace(place.frame, line=node.lineno), place.tree), text)


def _ordered(value: ast.expr, place: _Place, depth: int) -> Hashed | None:
    """Where a set gave its order to what may be no set itself, such as a list or a dict."""
    if depth > _DEPTH:
        return None
    if is_set(value, place.scope, place.tree):
        return _told(ast.unparse(value), value, place)
    if isinstance(value, ast.ListComp | ast.DictComp | ast.GeneratorExp):
        return _through(value.generators[0], place, depth + 1)
    if isinstance(value, ast.Name):
        return _ordered_by_name(value, place, depth + 1)
    if not isinstance(value, ast.Call):
        return None
    if called(value) in _VIEWS and isinstance(value.func, ast.Attribute):
        return _ordered(value.func.value, place, depth + 1)
    if called(value) in KEEP_ORDER and value.args:
        return _ordered(value.args[0], place, depth + 1)
    functions = [each for each in functions_of(place.tree) if each.name == called(value)]
    return _returned(functions[0], value, place, depth + 1) if len(functions) == 1 else None


def _ordered_by_name(name: ast.Name, place: _Place, depth: int) -> Hashed | None:
    given = list(made(name, place.scope))
    if not given:
        value, around = place.given.get(name.id, (None, place))
        return _ordered(value, around, depth) if value is not None else None
    filled = (_through(loop, place, depth) for loop in within(place.scope) if _fills(loop, name.id))
    found = [_ordered(each, place, depth) for each in given] if len(given) == 1 else []
    return next((each for each in (*found, *filled) if each is not None), None)


def _fills(loop: ast.AST, name: str) -> TypeGuard[ast.For]:
    """In each of its turns something is put into what has that name."""
    if not isinstance(loop, ast.For):
        return False
    parts = [part for each in loop.body for part in (each, *within(each))]
    stores = (part.value for part in parts if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store))
    methods = (part.func for part in parts if isinstance(part, ast.Call) and called(part) in _FILLS)
    owners = [*stores, *(each.value for each in methods if isinstance(each, ast.Attribute))]
    return any(isinstance(each, ast.Name) and each.id == name for each in owners)


def _returned(function: Function, call: ast.Call, place: _Place, depth: int) -> Hashed | None:
    """What it gives, of what the call passes to it."""
    inside = _Place(replace(place.frame, function=function.name), place.tree, function, _given(call, function, place))
    values = (node.value for node in within(function) if isinstance(node, ast.Return) and node.value is not None)
    return next((each for value in values if (each := _ordered(value, inside, depth)) is not None), None)


def _hands_on(statement: ast.stmt | None, target: ast.expr) -> bool:
    names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    used = (node for part in _heads(statement) for node in ast.walk(part) if isinstance(node, ast.Name))
    return any(node.id in names for node in used)


def _asked(scope: ast.AST, frame: Frame, tree: ast.Module) -> Hashed | None:
    """`hash()` in the statement at that line, or in a function of the module that it calls."""
    statement = _statement(scope, frame.line)
    asked = [node for part in _heads(statement) for node in ast.walk(part) if isinstance(node, ast.Call)]
    names = {called(node) for node in asked}
    functions = (each for each in functions_of(tree) if each.name in names)
    parts = [(frame.function, node) for node in asked]
    parts += [(each.name, node) for each in functions for node in within(each) if isinstance(node, ast.Call)]
    return next((_hashed(frame, function, call) for function, call in parts if _is_hash(call)), None)


def _hashed(frame: Frame, function: str, call: ast.Call) -> Hashed:
    if call.lineno >= IMPORTED:
        return Hashed(frame, ast.unparse(call))
    return Hashed(Frame(frame.file, call.lineno, function), ast.unparse(call))


def _is_hash(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "hash"


def _statement(scope: ast.AST, line: int) -> ast.stmt | None:
    """The smallest statement that holds the line."""
    around = [each for each in within(scope) if isinstance(each, ast.stmt) and holds([each], line)]
    return min(around, key=lambda each: (each.end_lineno or each.lineno) - each.lineno, default=None)


def _heads(statement: ast.stmt | None) -> Iterator[ast.AST]:
    """The statement, or what stands in the first line of a block."""
    if statement is not None and not hasattr(statement, "body"):
        yield statement
    yield from (part for name in ("test", "iter") if isinstance(part := getattr(statement, name, None), ast.expr))
