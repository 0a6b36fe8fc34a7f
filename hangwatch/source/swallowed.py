"""Where an error that was raised goes no further: except clauses, and the managers of `with` statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from hangwatch.source.syntax import called, ends, holds, within

_NO_ERRORS = frozenset({"KeyboardInterrupt", "SystemExit", "StopIteration", "GeneratorExit", "ImportError"})


def swallowing(scope: ast.AST, line: int, tree: ast.Module) -> Iterator[int]:
    """Lines of clauses of `scope` that swallow an error which is raised at `line`, the innermost first."""
    found = [
        clause
        for node in within(scope)
        if isinstance(node, ast.Try | ast.With) and holds(node.body, line)
        for clause, _ in clauses(node, tree)
    ]
    return reversed(found)


def clauses(node: ast.AST, tree: ast.Module) -> Iterator[tuple[int, list[ast.AST]]]:
    """The except clauses of a statement, and managers, that let some error at least go no further.

    A clause that raises again under a condition, as after the last try, goes on otherwise.
    """
    if isinstance(node, ast.Try):
        for handler in node.handlers:
            if catches_errors(handler) and not any(map(always_ends, handler.body)):
                yield handler.lineno, [part for statement in handler.body for part in (statement, *within(statement))]
    elif isinstance(node, ast.With) and suppresses(node, tree):
        yield node.lineno, []


def always_ends(statement: ast.stmt) -> bool:
    """An error goes further behind that statement, or the process ends, whatever its conditions ask for."""
    if isinstance(statement, ast.If):
        return bool(statement.orelse) and all(
            any(map(always_ends, part)) for part in (statement.body, statement.orelse)
        )
    if isinstance(statement, ast.With | ast.AsyncWith):
        return any(map(always_ends, statement.body))
    if isinstance(statement, ast.Try):
        ways = (statement.body, *(handler.body for handler in statement.handlers))
        return any(map(always_ends, statement.finalbody)) or all(any(map(always_ends, way)) for way in ways)
    return ends(statement) or (isinstance(statement, ast.Expr) and ends(statement.value))


def catches_errors(handler: ast.ExceptHandler) -> bool:
    """It is for errors, and not for the end of something."""
    return not named(handler.type) & _NO_ERRORS


def named(kind: ast.AST | None) -> set[str]:
    nodes = ast.walk(kind) if kind is not None else ()
    return {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in nodes}


def suppresses(node: ast.With, tree: ast.Module) -> bool:
    """`with suppress(...)`, or a manager that this module defines and that swallows an error."""
    return any(called(item.context_expr) in {"suppress", *_managers(tree)} for item in node.items)


@lru_cache(maxsize=64)
def _managers(tree: ast.Module) -> frozenset[str]:
    """The names of managers of a module that do: classes by what `__exit__` returns, generators by their clauses."""
    kinds = ast.ClassDef | ast.FunctionDef
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds) and _swallows(node))


def _swallows(node: ast.ClassDef | ast.FunctionDef) -> bool:
    if isinstance(node, ast.ClassDef):
        leaving = (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__exit__")
        return any(_is_told_true(part) for each in leaving for part in within(each))
    is_manager = any(_name(each) == "contextmanager" for each in node.decorator_list)
    return is_manager and any(map(_catches_at_its_yield, within(node)))


def _name(decorator: ast.expr) -> str:
    return decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")


def _is_told_true(node: ast.AST) -> bool:
    """`return True`, or of what may be true: the error goes no further then."""
    if not isinstance(node, ast.Return) or node.value is None:
        return False
    if isinstance(node.value, ast.Constant):
        return bool(node.value.value)
    return called(node.value) != "__exit__"  # what another manager says


def _catches_at_its_yield(node: ast.AST) -> bool:
    if not isinstance(node, ast.Try):
        return False
    yields = any(isinstance(part, ast.Yield) for statement in node.body for part in (statement, *within(statement)))
    return yields and any(catches_errors(each) and not any(map(always_ends, each.body)) for each in node.handlers)
