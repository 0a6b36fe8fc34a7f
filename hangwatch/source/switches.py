"""What the user's code sets for a package to decide by: `trainer.should_stop = True`, `control.should_evaluate = hot`.

A trainer's own loop has no line of the user's at which ranks could part. But the user's callbacks set attributes by
which it decides, and its source asks for them. Where both are found, the line that sets one on some ranks only is the
one to look at. Hints, and never proof.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from hangwatch.model import Frame, Switch
from hangwatch.source.decisions import Asks, asks
from hangwatch.source.guards import answers_on_way, rank_decorators
from hangwatch.source.loops import loops_around
from hangwatch.source.syntax import parsed, scope_of, within

MOST = 64  # settings of one file
LOG = "log"  # the name of a switch that is no attribute: what a trainer reduces is what was logged
_KEEPS_LOGGED = re.compile(r"/logger_connector/\w+\.py$")  # Lightning's, from where it reduces what was logged
_LOGGING = frozenset({"log", "log_dict"})
_MODULES = frozenset({"self", "pl_module", "module", "model"})
_ORDER: tuple[Asks, ...] = ("rank", "value", "check", "alike")
_OF_TENSORS = frozenset({"requires_grad", "training", "grad", "data"})  # set and asked for everywhere, of any part


class _Set(NamedTuple):
    name: str
    where: Frame
    condition: str
    asks: Asks


class _Asked(NamedTuple):
    name: str
    where: Frame
    last: int
    leaves: bool


def switches(own: Iterable[tuple[str, str]], packages: Iterable[tuple[str, str]]) -> tuple[Switch, ...]:
    """Those of the user's files that one of the packages' files asks for; each file with its text."""
    found = [asked for file, text in packages for asked in _asked_in(file, text)]
    names = {asked.name for asked in found} - _OF_TENSORS
    made = [each for file, text in own if names for each in _made_in(file, parsed(text), names)]
    return tuple(
        Switch(each.name, each.where, each.condition, each.asks, asked.where, asked.last, asked.leaves)
        for each in made
        for asked in found
        if asked.name == each.name
    )


# -------------------------------------------------------------- set by the user


def _made_in(file: str, tree: ast.Module | None, names: set[str]) -> Iterator[_Set]:
    yield from _set_in(file, tree, names)
    yield from _logged_in(file, tree, names)


def _logged_in(file: str, tree: ast.Module | None, names: set[str]) -> Iterator[_Set]:
    """What is logged under a condition: `self.log("recall", value)`, with a name, and not by a logger."""
    if tree is None or LOG not in names:
        return
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for node in islice(filter(_logs, calls), MOST):
        scope = scope_of(tree, node.lineno)
        found = _one(file, LOG, node, scope, tree)
        loop = _names_it(scope, node)
        if loop is not None and not found.condition:
            found = found._replace(
                condition=f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}", asks="value"
            )
        yield found


def _names_it(scope: ast.AST, node: ast.Call) -> ast.For | None:
    """The loop over what a rank has that gives what is logged its name: `for key in self.seen: self.log(key, 1)`."""
    named = {part.id for part in ast.walk(node.args[0]) if isinstance(part, ast.Name)}
    loops = (loop for loop in loops_around(scope, node.lineno) if isinstance(loop, ast.For))
    for loop in loops:
        given = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
        if named & given and not isinstance(loop.iter, ast.Tuple | ast.List | ast.Set | ast.Dict):
            return loop
    return None


def _logs(node: ast.Call) -> bool:
    made = node.func
    if not isinstance(made, ast.Attribute) or made.attr not in _LOGGING or not isinstance(made.value, ast.Name):
        return False
    first = node.args[0] if node.args else None
    text = isinstance(first, ast.Constant) and isinstance(first.value, str)
    return made.value.id in _MODULES and (text or isinstance(first, ast.JoinedStr | ast.Dict | ast.Name))


def _set_in(file: str, tree: ast.Module | None, names: set[str]) -> Iterator[_Set]:
    if tree is None:
        return
    assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_truth(node.value))
    targets = ((node, target) for node in assigned for target in node.targets if isinstance(target, ast.Attribute))
    wanted = ((node, each) for node, each in targets if each.attr in names and not _is_self(each.value))
    for node, target in islice(wanted, MOST):
        yield _one(file, target.attr, node, scope_of(tree, node.lineno), tree)


def _one(file: str, name: str, node: ast.Assign | ast.Call, scope: ast.AST, tree: ast.Module) -> _Set:
    tests = [test if answer else ast.UnaryOp(ast.Not(), test) for test, answer in answers_on_way(scope, node.lineno)]
    told = f"if {ast.unparse(tests[-1])}" if tests else ""
    if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
        tests.append(node.value)
        told = told or ast.unparse(node.value)
    kinds = [asks(test, scope, tree) for test in tests]
    kind: Asks = next((each for each in _ORDER if each in kinds), "alike")
    for decorator in rank_decorators(scope):
        told, kind = f"@{ast.unparse(decorator)}", "rank"
    return _Set(name, Frame(file, node.lineno, getattr(scope, "name", "<module>")), told, kind)


def _is_truth(value: ast.expr) -> bool:
    negated = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    constant = isinstance(value, ast.Constant) and isinstance(value.value, bool)
    return negated or constant or isinstance(value, ast.Compare | ast.BoolOp)


def _is_self(owner: ast.expr) -> bool:
    """An attribute of the user's own object. A package may ask it, but it is most likely the user's own affair."""
    return isinstance(owner, ast.Name) and owner.id in ("self", "cls")


# -------------------------------------------------------------- asked for by a package


@lru_cache(maxsize=128)
def _asked_in(file: str, text: str) -> tuple[_Asked, ...]:
    """What the conditions of a package's file ask for. Remembered, and its tree is not: some take tens of megabytes."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found: list[_Asked] = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            answers = any(ast.unparse(each).endswith("property") for each in function.decorator_list)
            if function.name == LOG and _KEEPS_LOGGED.search(file):
                found.append(_Asked(LOG, Frame(file, function.lineno, LOG), 0, leaves=False))
            for node in within(function):
                if isinstance(node, ast.If | ast.While):
                    found += _asked_at(Frame(file, node.lineno, function.name), node, answers=answers)
    return tuple(found)


def _asked_at(where: Frame, node: ast.If | ast.While, *, answers: bool) -> Iterator[_Asked]:
    """`answers`: it stands in a property, whose value others ask for, as for whether a loop is done."""
    ends = ast.Break | ast.Return if answers else ast.Break
    leaves = isinstance(node, ast.While) or isinstance(node.body[-1], ends)
    last = node.body[-1].end_lineno or node.lineno
    for name in sorted({part.attr for part in ast.walk(node.test) if isinstance(part, ast.Attribute)}):
        yield _Asked(name, where, last, leaves)
