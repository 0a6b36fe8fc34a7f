"""For which key of a store a line of the user's waits, and which lines set that key. A hint, and never proof.

No stack shows the key. Where it stands in the source as a text, or a caller hands it down as one, the same text in a
call that sets a key tells which line was to set it, under which conditions, and whether an error may have been
swallowed on the way there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hangwatch.model import Condition, Frame, KeySetter, StoreKey
from hangwatch.source.decisions import asks
from hangwatch.source.guards import alike_on_all, answers_on_way, rank_of
from hangwatch.source.loops import innermost_loop
from hangwatch.source.swallowed import clauses
from hangwatch.source.syntax import Function, called, functions_of, holds, parsed, scope_of, within

_WAITS = frozenset({"get", "wait", "multi_get", "check"})
_SETS = frozenset({"set", "multi_set", "compare_set", "add", "append"})
_INVERSE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}
_KEY = frozenset({"key", "keys"})
_CALLERS = 4  # functions that are followed up from the line that sets a key, or that waits
_MOST = 8  # lines that set one key

Way = tuple[tuple[str, ast.Module, int], ...]  # file, module and line of a call and of those that lead to it
Place = tuple[Frame, ast.Module]


def awaited_key(frames: Sequence[Place]) -> str:
    """The key for which the innermost of the user's `frames` (each with its module) waits; "" where that is not shown.

    Where several keys are waited for in one call, and for a loop that asks for more than one, none is.
    """
    if not frames:
        return ""
    line, scope = frames[0][0].line, scope_of(frames[0][1], frames[0][0].line)
    found = [node for node in within(scope) if _is_call(node, _WAITS) and _spans(node, line)]
    if not found and (loop := innermost_loop(scope, line)) is not None:
        found = [node for node in (loop, *within(loop)) if _is_call(node, _WAITS)]
    keys = {_handed_down(_key_of(node), frames) for node in found if isinstance(node, ast.Call)} - {""}
    return keys.pop() if len(keys) == 1 else ""


def with_setters(key: StoreKey, program: Mapping[str, str]) -> StoreKey:
    """`key` with the lines of the program (its files by name, with their texts) that set a key of the same text."""
    trees = {file: tree for file, text in program.items() if (tree := parsed(text)) is not None}
    found = [way for file, tree in trees.items() for way in _setting(key.key, file, tree)]
    setters = tuple(_setter(_with_callers(way, trees)) for way in found[:_MOST])
    return StoreKey(key.frames, key.key, setters)


# ------------------------------------------------------------------ the key


def _is_call(node: ast.AST, names: frozenset[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def _spans(node: ast.AST, line: int) -> bool:
    first = getattr(node, "lineno", 0)
    return first <= line <= (getattr(node, "end_lineno", None) or first)


def _key_of(call: ast.Call) -> ast.expr | None:
    """The one key in the arguments of a call; None for no key, or several."""
    given = call.args[0] if call.args else next((each.value for each in call.keywords if each.arg in _KEY), None)
    if isinstance(given, ast.List | ast.Tuple):
        return given.elts[0] if len(given.elts) == 1 else None
    return given


def _handed_down(key: ast.expr | None, frames: Sequence[Place]) -> str:
    """The text of a key that stands in the innermost function, or that its callers have handed to it."""
    for depth, (frame, tree) in enumerate(frames[:_CALLERS]):
        if key is None or (text := _text(key, tree)):
            return text if key is not None else ""
        scope = scope_of(tree, frame.line)
        if not isinstance(key, ast.Name) or not isinstance(scope, Function) or depth + 1 >= len(frames):
            return ""
        caller, module = frames[depth + 1]
        calls = [node for node in within(scope_of(module, caller.line)) if _calls(node, scope, caller.line)]
        key = _argument(calls[0], scope, key.id) if len(calls) == 1 else None
    return ""


def _calls(node: ast.AST, function: Function, line: int) -> bool:
    return called(node) == function.name and _spans(node, line)


def _argument(call: ast.AST, function: Function, name: str) -> ast.expr | None:
    """What a call hands to that parameter of a function; None where that cannot be told."""
    if not isinstance(call, ast.Call):
        return None
    for each in call.keywords:
        if each.arg == name:
            return each.value
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if name not in names or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    at = names.index(name) - (names[:1] == ["self"] and isinstance(call.func, ast.Attribute))
    return call.args[at] if 0 <= at < len(call.args) else None


def _text(key: ast.expr, tree: ast.Module) -> str:
    """A text as it is written, or a constant of the module; of an f-string what varies is put as `{}`."""
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return key.value
    if isinstance(key, ast.JoinedStr):
        parts = [str(each.value) if isinstance(each, ast.Constant) else "{}" for each in key.values]
        return "".join(parts) if any(part != "{}" for part in parts) else ""
    if isinstance(key, ast.Name | ast.Attribute):
        name = key.id if isinstance(key, ast.Name) else key.attr
        return _constant(name, tree)
    return ""


def _constant(name: str, tree: ast.Module) -> str:
    """The text that the module, or one of its classes, gives to a name, if nothing else in it is called so."""
    bound = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name and _binds(node)]
    bound_too = [node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.arg == name]
    made = [
        node
        for body in (tree.body, *(each.body for each in tree.body if isinstance(each, ast.ClassDef)))
        for node in body
        if isinstance(node, ast.Assign) and node.targets == bound
    ]
    value = made[0].value if len(made) == 1 and not bound_too else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _binds(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store | ast.Del)


# ------------------------------------------------------------------ what sets it


def _setting(key: str, file: str, tree: ast.Module) -> Iterator[Way]:
    """The calls that set that key: of a store, or of a function that sets the key that it is given."""
    through = [(function, name) for function in functions_of(tree) if (name := _sets_parameter(function))]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        given = _key_of(node) if _is_call(node, _SETS) else None
        if given is None:
            handed = [_argument(node, each, name) for each, name in through if called(node) == each.name]
            given = handed[0] if len(handed) == 1 else None
        if given is not None and _text(given, tree) == key:
            yield ((file, tree, node.lineno),)


def _sets_parameter(function: Function) -> str:
    """The parameter of a function that it sets as a key; "" for none."""
    names = {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    keys = (_key_of(node) for node in within(function) if isinstance(node, ast.Call) and _is_call(node, _SETS))
    return next((key.id for key in keys if isinstance(key, ast.Name) and key.id in names), "")


def _with_callers(way: Way, trees: Mapping[str, ast.Module]) -> Way:
    """The way with the calls that lead there, as long as there is only one of each function by its name."""
    for _ in range(_CALLERS):
        _, tree, line = way[-1]
        scope = scope_of(tree, line)
        if not isinstance(scope, Function):
            return way
        calls = [
            (file, module, node.lineno)
            for file, module in trees.items()
            for node in ast.walk(module)
            if isinstance(node, ast.Call) and called(node) == scope.name
        ]
        if len(calls) != 1 or calls[0] in way:
            return way
        way = (*way, calls[0])
    return way


@dataclass(frozen=True)
class _Step:
    """One function on the way to the call: its conditions and the clause that swallows errors there."""

    conditions: tuple[Condition, ...]
    rank: int | None
    tried: tuple[Frame, Frame] | None


def _setter(way: Way) -> KeySetter:
    steps = [_step(file, tree, line) for file, tree, line in way]
    tried = next((step.tried for step in steps if step.tried is not None), None)
    return KeySetter(
        frames=tuple(_frame(file, tree, line) for file, tree, line in way),
        conditions=tuple(each for step in reversed(steps) for each in step.conditions),
        rank=next((step.rank for step in steps if step.rank is not None), None),
        tries=tried[0] if tried is not None else None,
        swallows=tried[1] if tried is not None else None,
    )


def _frame(file: str, tree: ast.Module, line: int) -> Frame:
    scope = scope_of(tree, line)
    return Frame(file, line, scope.name if isinstance(scope, Function) else "<module>")


def _step(file: str, tree: ast.Module, line: int) -> _Step:
    scope, here = scope_of(tree, line), _frame(file, tree, line)
    answers = [(test, yes) for test, yes in answers_on_way(scope, line) if not alike_on_all(test)]
    conditions = tuple(
        Condition(Frame(file, test.lineno, here.function), _condition(test, yes=yes), asks(test, scope, tree))
        for test, yes in answers
    )
    ranks = [rank for test, yes in answers if (rank := rank_of(test, tree, yes=yes)) is not None]
    return _Step(conditions, ranks[0] if ranks else None, _tried(scope, here, tree))


def _condition(test: ast.expr, *, yes: bool) -> str:
    return f"if {ast.unparse(test if yes else _inverse(test))}"


def _inverse(test: ast.expr) -> ast.expr:
    """`rank == 0` for `rank != 0`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and (other := _INVERSE.get(type(test.ops[0]))) is not None:
        return ast.Compare(test.left, [other()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def _tried(scope: ast.AST, here: Frame, tree: ast.Module) -> tuple[Frame, Frame] | None:
    """The first line of the innermost `try` around the call, and its clause that lets some error go no further."""
    found: tuple[Frame, Frame] | None = None
    for node in within(scope):
        if isinstance(node, ast.Try | ast.With) and holds(node.body, here.line):
            for line, _ in list(clauses(node, tree))[:1]:
                found = Frame(here.file, node.body[0].lineno, here.function), Frame(here.file, line, here.function)
    return found


def places(frames: Sequence[Frame], source_of: Callable[[str], str | None]) -> tuple[Place, ...]:
    """The user's frames with their modules, as far as those can be read, from the innermost on."""
    found: list[Place] = []
    for frame in frames:
        tree = parsed(source_of(frame.file))
        if tree is None:
            break
        found.append((frame, tree))
    return tuple(found)
