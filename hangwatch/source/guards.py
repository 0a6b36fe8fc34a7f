"""What the source says of the conditions on a thread's way: whether it stands where only some ranks come. A hint."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Literal

from hangwatch.model import Frame
from hangwatch.source.both_ways import called_both_ways
from hangwatch.source.decorated import last_name
from hangwatch.source.loops import innermost_loop
from hangwatch.source.syntax import holds, scope_of, within
from hangwatch.stacks.frames import name_of

Guard = Literal["rank", "other", "none", ""]

_RANK = re.compile(
    r"rank|master|chief|leader|primary|coordinator|global_zero|main_proc|is_main|process_(zero|index|id)|first_process"
    r"|args\.should_(save|log)$",  # transformers: true on one process; of the control of a training, on all alike
    re.IGNORECASE,
)
_RANK_ITSELF = re.compile(r"rank$|process_index$", re.IGNORECASE)
_OF_JOB = frozenset({"rank", "get_rank", "global_rank", "get_global_rank", "process_index"})
_MAIN = re.compile(r"^(is_)?(main|master|chief|rank_?zero|global_zero|world_process_zero|main_process)$", re.IGNORECASE)
_CACHES = frozenset({"lru_cache", "cache", "cached", "cached_property", "memoize"})
_SIZE = re.compile(r"world_?size$|\bn(um)?_?(procs|ranks|gpus?)$", re.IGNORECASE)
_OF_TORCH = {f"{module}.{asked}" for module in ("dist", "distributed") for asked in ("is_initialized", "is_available")}
_TURNS_BACK = (ast.Return, ast.Continue, ast.Raise)


def guard_around(frames: Sequence[tuple[Frame, ast.Module]]) -> Guard:
    """The condition under which the innermost of the user's `frames` (each with its module) is reached.

    "rank" for one that asks which rank it is, wherever on the way; "other" for another one inside of the innermost
    loop; "none" where there is none. A condition on the rank that leads to a function of the user's both ways is none.
    """
    conditional = looped = False
    inner = ""  # the function of the user's that is called on that line
    for frame, tree in frames:
        scope, known = scope_of(tree, frame.line), _derived(tree)
        guarded = any(_asks_rank(test, known) for test in conditions_to(scope, frame.line))
        if guarded and inner and called_both_ways(scope, frame.line, inner, partial(_asks_rank, known=known)):
            guarded = False
        if guarded or rank_decorators(scope):
            return "rank"
        inner = name_of(frame.function)
        if not looped:
            loop = innermost_loop(scope, frame.line)
            inside: ast.AST = loop if loop is not None else scope
            looped = loop is not None
            conditional = conditional or any(not alike_on_all(test) for test in conditions_to(inside, frame.line))
    return "other" if conditional else "none" if frames else ""


def conditions_to(scope: ast.AST, line: int) -> Iterator[ast.AST]:
    """The conditions in `scope` on the way to `line`: around it, on it, or before it where they turn others back."""
    yield from (test for test, _ in answers_on_way(scope, line))
    for node in within(scope):
        asked = asked_first(node, line)
        if asked is not None:
            yield asked


def asked_first(node: ast.AST, line: int) -> ast.expr | None:
    """What decides in an expression whether its call on that line is made: `ready and gather(x)`."""
    if isinstance(node, ast.IfExp):
        return node.test if has_call(node.body, line) or has_call(node.orelse, line) else None
    if not isinstance(node, ast.BoolOp):
        return None
    last = max((place for place, value in enumerate(node.values) if has_call(value, line)), default=0)
    return None if not last else node.values[0] if last == 1 else ast.BoolOp(node.op, node.values[:last])


def has_call(node: ast.AST, line: int) -> bool:
    """Something is called there: else it is a value, such as the argument of a call that all ranks make."""
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(call.lineno <= line <= (call.end_lineno or call.lineno) for call in calls)


def answers_on_way(scope: ast.AST, line: int) -> Iterator[tuple[ast.expr, bool]]:
    """Each `if` in `scope` that decides whether `line` is reached, with the answer that leads there, outer ones first.

    It stands around the line, or before it in a block around it and turns back.
    """
    for statement in next((block for block in _blocks(scope) if holds(block, line)), ()):
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            if isinstance(statement, ast.If) and (holds(statement.body, line) or holds(statement.orelse, line)):
                yield statement.test, holds(statement.body, line)
            yield from answers_on_way(statement, line)
            return
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], _TURNS_BACK):
            yield statement.test, False


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of a statement, those of its except clauses and cases too."""
    for name in ("body", "orelse", "finalbody"):
        if isinstance(block := getattr(node, name, None), list):
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def rank_of(test: ast.AST, tree: ast.Module, *, yes: bool) -> int | None:
    """The only rank that answers the condition `test` so; None where several may, or it cannot be told.

    0 for `rank == 0`, for `not rank`, and for what programs call the main process. A rank within a node or a group is
    no rank of the job.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return rank_of(test.operand, tree, yes=not yes)
    if not asks_rank(test, tree):
        return None
    if isinstance(test, ast.Compare):
        return _rank_compared(test, yes=yes)
    if isinstance(test, ast.Name | ast.Attribute | ast.Call):
        name = last_name(test.func if isinstance(test, ast.Call) else test)
        return 0 if (yes and _MAIN.search(name)) or (not yes and name.lower() in _OF_JOB) else None
    return None


def _rank_compared(test: ast.Compare, *, yes: bool) -> int | None:
    value = test.comparators[0]
    number = value.value if len(test.ops) == 1 and isinstance(value, ast.Constant) else None
    equal = isinstance(test.ops[0], ast.Eq if yes else ast.NotEq)
    grouped = isinstance(test.left, ast.Call) and bool(test.left.args or test.left.keywords)
    itself = last_name(test.left.func if isinstance(test.left, ast.Call) else test.left).lower() in _OF_JOB
    return number if type(number) is int and equal and itself and not grouped else None


def asks_rank(test: ast.AST, tree: ast.Module) -> bool:
    """The condition `test` of the module `tree` asks which rank it is."""
    return _asks_rank(test, _derived(tree))


def _asks_rank(test: ast.AST, known: frozenset[str]) -> bool:
    if isinstance(test, ast.BoolOp):
        return any(_asks_rank(value, known) for value in test.values)
    if isinstance(test, ast.UnaryOp):
        return _asks_rank(test.operand, known)
    return not alike_on_all(test) and any(_RANK.search(name) or name in known for name in _names(test))


def _names(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
            yield f".{part.attr}"
            yield f"{getattr(part.value, 'attr', getattr(part.value, 'id', ''))}.{part.attr}"
        elif isinstance(part, ast.Subscript | ast.Call):
            yield from _keys(part)


def _keys(node: ast.Subscript | ast.Call) -> Iterator[str]:
    """The text by which something is looked up: os.environ["RANK"], os.getenv("RANK"). Other text names no rank."""
    keys = [node.slice] if isinstance(node, ast.Subscript) else node.args[:1]
    for key in keys:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


@lru_cache(maxsize=64)
def _derived(tree: ast.Module) -> frozenset[str]:
    """Names of the rank, and those that an assignment makes from a comparison with it, or for some ranks only."""
    own = frozenset(_aliases(tree) | _roles(tree))
    known = own | frozenset(_compared(tree, own)) | (set(_made_by_some(tree, own)) & set(_absent(tree)))
    return known | frozenset(_answers(tree, known))


def _aliases(tree: ast.Module) -> set[str]:
    """`r` in `r, n = dist.get_rank(), 4`, where nothing else in the module is called so."""
    found: set[str] = set()
    others: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            others += _names(node.target)
        for target, value in _pairs(node) if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Name) and _is_rank(value):
                found.add(target.id)
            else:
                others += _names(target)
    return found - set(others)


def _roles(tree: ast.Module) -> set[str]:
    """`.stage` in `self.stage = self.rank // self.width`: it divides the ranks among roles, and is set nowhere else."""
    found: set[str] = set()
    others: list[str] = []
    for target, value in (pair for node in ast.walk(tree) if isinstance(node, ast.Assign) for pair in _pairs(node)):
        divides = isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv | ast.Mod) and _is_rank(value.left)
        if isinstance(target, ast.Attribute):
            (found.add if divides else others.append)(f".{target.attr}")
    return found - set(others)


def _answers(tree: ast.Module, known: frozenset[str]) -> Iterator[str]:
    """`.is_last` for a method, `writes` for a function, that only compares the rank, or a role that follows from it."""
    for owner in ast.walk(tree):
        for each in owner.body if isinstance(owner, ast.ClassDef | ast.Module) else ():
            if isinstance(each, ast.FunctionDef) and _only_asks_rank(each, known):
                yield f".{each.name}" if isinstance(owner, ast.ClassDef) else each.name


def _only_asks_rank(function: ast.FunctionDef, known: frozenset[str]) -> bool:
    *documented, last = function.body
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Compare | ast.BoolOp | ast.UnaryOp):
        return False
    alone = all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in documented)
    return alone and _asks_rank(last.value, known)


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with its value; a tuple of both is taken apart."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _is_rank(value: ast.expr) -> bool:
    """It is the rank itself: a function or attribute of that name, or an environment variable, maybe as a number."""
    if isinstance(value, ast.Call):
        function = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        plain = function in ("int", "getenv", "get") and bool(value.args) and _is_rank(value.args[0])
        return plain or _RANK.search(function) is not None
    if isinstance(value, ast.Subscript):
        return _is_rank(value.slice)
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", getattr(value, "value", ""))
    return isinstance(name, str) and _RANK.search(name) is not None


def _compared(tree: ast.Module, known: frozenset[str]) -> Iterator[str]:
    """`main = rank == 0`, `first, last = rank == 0, rank == n - 1`, `writer = Writer() if rank == 0 else None`."""
    assignments = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
    for target, value in (pair for node in assignments for pair in _pairs(node)):
        test = value.test if isinstance(value, ast.IfExp) else value
        plain = isinstance(value, ast.IfExp | ast.Compare | ast.BoolOp | ast.UnaryOp)
        if plain and _asks_rank(test, known):
            yield from set(_names(target)) - {"self"}


def _made_by_some(tree: ast.Module, known: frozenset[str]) -> Iterator[str]:
    """What is assigned below `if rank == 0:`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _asks_rank(node.test, known):
            for each in (part for statement in node.body for part in ast.walk(statement)):
                yield from _targets(each) if isinstance(each, ast.Assign) else ()


def _absent(tree: ast.Module) -> Iterator[str]:
    """What is None somewhere, to be made later."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is None:
            yield from _targets(node)


def _targets(node: ast.Assign) -> set[str]:
    return {name for target in node.targets for name in _names(target)} - {"self"}


def rank_decorators(scope: ast.AST) -> list[ast.expr]:
    """The decorators of a function that let only some ranks in, by their names: `@rank_zero_only`."""
    return [each for each in _decorators(scope) if any(_RANK.search(name) for name in _names(each))]


def caches(scope: ast.AST) -> list[ast.expr]:
    """The decorators of a function that call it once for each of its arguments: `@functools.lru_cache`."""
    return [each for each in _decorators(scope) if last_name(each) in _CACHES]


def _decorators(scope: ast.AST) -> list[ast.expr]:
    return scope.decorator_list if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else []


def alike_on_all(test: ast.AST) -> bool:
    """It has one answer on all ranks: whether the module is the program, or whether the job is distributed at all.

    `__name__ == "__main__"` in the last lines of a script; `rank != -1`, `world_size > 1`, `dist.is_initialized()`.
    """
    if isinstance(test, ast.BoolOp):
        return all(alike_on_all(value) for value in test.values)
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not) and alike_on_all(test.operand)
    names = set(_names(test))
    if "__name__" in names or names & _OF_TORCH:
        return True
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return False
    operator, value = test.ops[0], ast.unparse(test.comparators[0])
    if any(_SIZE.search(name) for name in names):
        return value == "1"
    if not any(_RANK_ITSELF.search(name) for name in names):
        return False
    below = value == "-1" and isinstance(operator, ast.Eq | ast.NotEq | ast.Gt | ast.LtE)
    return value == "None" or below or (value == "0" and isinstance(operator, ast.GtE | ast.Lt))
