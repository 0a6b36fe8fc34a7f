"""What is a set, as far as the source shows: its order is that of hashes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangwatch.source.syntax import called, within

_SETS = frozenset({"set", "frozenset"})
_STILL_SETS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_NUMBERS = frozenset({"int", "len", "float", "get_rank", "get_world_size"})
KEEP_ORDER = frozenset({"list", "tuple", "enumerate", "iter", "tqdm"})


def is_set(value: ast.expr, scope: ast.AST, tree: ast.Module) -> bool:
    """A set, or what keeps its order; numbers hash alike everywhere."""
    if isinstance(value, ast.Set):
        return not all(map(_is_number, value.elts))
    if isinstance(value, ast.SetComp):
        return not _is_number(value.elt)
    if isinstance(value, ast.BinOp) and isinstance(value.op, _OPERATORS):
        return is_set(value.left, scope, tree) or is_set(value.right, scope, tree)
    if isinstance(value, ast.Call):
        if called(value) in KEEP_ORDER:
            return bool(value.args) and is_set(value.args[0], scope, tree)
        if called(value) in _STILL_SETS and isinstance(value.func, ast.Attribute):
            return is_set(value.func.value, scope, tree)
        return called(value) in _SETS and isinstance(value.func, ast.Name) and not _is_of_numbers(value)
    if isinstance(value, ast.Name | ast.Attribute):
        given = (
            list(made(value, scope)) if isinstance(value, ast.Name) else [*made(value, tree), *_defaults(value, tree)]
        )
        return bool(given) and all(not _names(each, value) and is_set(each, scope, tree) for each in given)
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


def made(value: ast.Name | ast.Attribute, scope: ast.AST) -> Iterator[ast.expr]:
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


def _defaults(value: ast.Attribute, tree: ast.Module) -> Iterator[ast.expr]:
    """What classes of the module give to an attribute of that name in their bodies, as data classes do."""
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in (each for one in classes for each in one.body if isinstance(each, ast.Assign | ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is not None and any(getattr(target, "id", "") == value.attr for target in targets):
            yield _default(node.value)


def _default(value: ast.expr) -> ast.expr:
    """What `field(default_factory=lambda: {"a"})` or `field(default_factory=set)` makes."""
    given = value.keywords if isinstance(value, ast.Call) and called(value) == "field" else ()
    factory = next((each.value for each in given if each.arg == "default_factory"), None)
    if factory is None:
        return value
    return factory.body if isinstance(factory, ast.Lambda) else ast.Call(factory, [], [])
