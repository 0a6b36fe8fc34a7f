"""The line at which a function of the user's was given a decorator, by whose wrapper it has been called."""

from __future__ import annotations

import ast

from hangwatch.model import Frame
from hangwatch.source.syntax import Function, functions_of, holds, scope_of, within


def decoration(wrapper: tuple[Frame, ast.Module], wrapped: tuple[Frame, ast.Module]) -> ast.expr | None:
    """The decorator above the function of `wrapped` (a frame and its module) through which `wrapper` has called it.

    The wrapper calls, on its line, what a function around it was handed; and the decorator has that function's name.
    """
    frame, tree = wrapper
    scope = scope_of(tree, frame.line)
    around = _around(tree, scope)
    handed = {argument.arg for function in around for argument in function.args.args}
    calls = (each for each in within(scope) if isinstance(each, ast.Call) and each.lineno == frame.line)
    if not any(isinstance(call.func, ast.Name) and call.func.id in handed for call in calls):
        return None
    function, names = scope_of(wrapped[1], wrapped[0].line), {each.name for each in around}
    decorators = function.decorator_list if isinstance(function, Function) else ()
    return next((each for each in decorators if last_name(each) in names), None)


def last_name(decorator: ast.expr) -> str:
    """`cache` of `@functools.cache` and of `@cache(maxsize=8)`."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _around(tree: ast.Module, scope: ast.AST) -> list[Function]:
    """The functions in whose body the function `scope` is defined."""
    if not isinstance(scope, Function):
        return []
    return [each for each in functions_of(tree) if holds(each.body, scope.lineno)]
