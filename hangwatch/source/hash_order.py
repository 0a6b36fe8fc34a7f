"""What in the source follows from the hash of a value: the order of a set, and what `hash()` gives.

Python salts the hashes of strings, in each process otherwise: what follows from them differs from rank to rank.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from hangwatch.model import Frame, Hashed
from hangwatch.source.loops import loops_around
from hangwatch.source.syntax import IMPORTED, called, functions_of, holds, scope_of, within

_SETS = frozenset({"set", "frozenset"})
_STILL_SETS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_NUMBERS = frozenset({"int", "len", "float", "get_rank", "get_world_size"})
_KEEP_ORDER = frozenset({"list", "tuple", "enumerate", "iter", "tqdm"})


def by_hash(frames: Sequence[tuple[Frame, ast.Module]]) -> Hashed | None:
    """The innermost line on the way to a call by the user's `frames` that goes through a set, or asks for a hash.

    Of the frames that lead to the function with the call, a loop counts where it hands on what it goes through.
    """
    for depth, (frame, tree) in enumerate(frames):
        scope = scope_of(tree, frame.line)
        for loop in loops_around(scope, frame.line):
            if isinstance(loop, ast.For) and _is_set(loop.iter, scope, tree):
                if depth and not _hands_on(_statement(scope, frame.line), loop.target):
                    continue
                text = f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"
                return Hashed(Frame(frame.file, loop.lineno, frame.function), text)
        if not depth and (found := _asked(scope, frame, tree)) is not None:
            return found
    return None


def _hands_on(statement: ast.stmt | None, target: ast.expr) -> bool:
    names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    used = (node for part in _heads(statement) for node in ast.walk(part) if isinstance(node, ast.Name))
    return any(node.id in names for node in used)


def _is_set(value: ast.expr, scope: ast.AST, tree: ast.Module) -> bool:
    """A set, or what keeps its order; numbers hash alike everywhere."""
    if isinstance(value, ast.Set):
        return not all(map(_is_number, value.elts))
    if isinstance(value, ast.SetComp):
        return not _is_number(value.elt)
    if isinstance(value, ast.BinOp) and isinstance(value.op, _OPERATORS):
        return _is_set(value.left, scope, tree) or _is_set(value.right, scope, tree)
    if isinstance(value, ast.Call):
        if called(value) in _KEEP_ORDER:
            return bool(value.args) and _is_set(value.args[0], scope, tree)
        if called(value) in _STILL_SETS and isinstance(value.func, ast.Attribute):
            return _is_set(value.func.value, scope, tree)
        return called(value) in _SETS and isinstance(value.func, ast.Name) and not _is_of_numbers(value)
    if isinstance(value, ast.Name | ast.Attribute):
        made = list(_made(value, scope if isinstance(value, ast.Name) else tree))
        return bool(made) and all(not _names(each, value) and _is_set(each, scope, tree) for each in made)
    return False


def _is_of_numbers(value: ast.Call) -> bool:
    given = value.args[0] if value.args else None
    if isinstance(given, ast.GeneratorExp | ast.ListComp):
        return _is_number(given.elt)
    if isinstance(given, ast.List | ast.Tuple):
        return all(map(_is_number, given.elts))
    return given is not None and called(given) == "range"


def _is_number(value: ast.expr) -> bool:
    """By the look of it: a sum without any text in it, a length."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float)
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    if isinstance(value, ast.BinOp):
        texts = (each for each in ast.walk(value) if isinstance(each, ast.JoinedStr | ast.Constant))
        return not any(isinstance(each, ast.JoinedStr) or isinstance(each.value, str) for each in texts)
    return called(value) in _NUMBERS


def _made(value: ast.Name | ast.Attribute, scope: ast.AST) -> Iterator[ast.expr]:
    """What is assigned to that name in the function, or to that attribute in the module."""
    text = ast.unparse(value)
    for node in ast.walk(scope) if isinstance(value, ast.Attribute) else within(scope):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(ast.unparse(target) == text for target in targets):
            yield node.value


def _names(value: ast.expr, name: ast.Name | ast.Attribute) -> bool:
    """It is made from itself: what it was before says what it is."""
    return ast.unparse(name) in {ast.unparse(part) for part in ast.walk(value) if isinstance(part, type(name))}


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
