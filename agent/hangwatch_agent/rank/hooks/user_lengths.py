"""What a user's `__len__` would say, read from its source and never run: `return len(self.indices)` and the like.

A `__len__` may draw random numbers, count, or take seconds, so only one statement that reckons with numbers and the
lengths of what was set on the object itself is understood; of any other nothing is said.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import math
import operator
import textwrap
from collections.abc import Callable
from typing import Any

DEPTH = 4  # of lengths that are lengths of other objects
LARGEST = 1 << 48
OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
CALLS: dict[str, Callable[..., Any]] = {"int": int, "min": min, "max": max, "ceil": math.ceil, "floor": math.floor}


class _UnknownError(Exception):
    """The source does not say it."""


def promised(thing: Any, length: Callable[[Any], int | None], depth: int = DEPTH) -> int | None:
    """The value of the `__len__` of `thing`'s class; None where its source does not show it.

    Args:
        length: what tells the length of the objects that it asks for, e.g. of a list; None for unknown.
    """
    function = getattr(type(thing), "__len__", None)
    if not depth or not inspect.isfunction(function):
        return None
    try:
        tree = ast.parse(_source(function))
        value = _Reckoning(thing, length, depth).of(_returned(tree))
    except (_UnknownError, OSError, TypeError, IndexError, SyntaxError, ValueError, ArithmeticError):
        return None
    return value if type(value) is int and 0 <= value < LARGEST else None


def _source(function: Any) -> str:
    """Its text. Not by inspect.getsource, which asks every imported module for its file, lazy ones included."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    return textwrap.dedent("".join(inspect.getblock(lines)))


def _returned(tree: ast.Module) -> ast.expr:
    """The expression of a function whose only statement, besides a docstring, is `return`."""
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        raise _UnknownError
    body = [each for each in function.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        raise _UnknownError
    return body[0].value


class _Reckoning:
    def __init__(self, thing: Any, length: Callable[[Any], int | None], depth: int) -> None:
        self._thing, self._length, self._depth = thing, length, depth

    def of(self, node: ast.expr) -> Any:
        """The value of an expression: numbers, `self.name`, `len(self.name)`, and arithmetic of these."""
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return node.value
        if isinstance(node, ast.Attribute):
            return self._number(self._attribute(node))
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](self.of(node.left), self.of(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.of(node.operand)
        if isinstance(node, ast.Call) and not node.keywords:
            return self._called(node)
        raise _UnknownError

    def _called(self, node: ast.Call) -> Any:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "len" and len(node.args) == 1 and isinstance(node.args[0], ast.Attribute):
            asked = self._attribute(node.args[0])
            known = self._length(asked)
            found = promised(asked, self._length, self._depth - 1) if known is None else known
            return self._number(found)
        if name in CALLS and node.args:
            return CALLS[name](*(self.of(each) for each in node.args))
        raise _UnknownError

    def _attribute(self, node: ast.Attribute) -> Any:
        """`self.name`, where it was set on the object, and no class of it has a property of that name."""
        if not isinstance(node.value, ast.Name) or node.value.id != "self":
            raise _UnknownError
        own = object.__getattribute__(self._thing, "__dict__")
        if node.attr not in own or any(node.attr in vars(each) for each in type(self._thing).__mro__):
            raise _UnknownError
        return own[node.attr]

    @staticmethod
    def _number(value: Any) -> Any:
        if type(value) not in (int, float):
            raise _UnknownError
        return value
