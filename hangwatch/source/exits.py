"""Where a function that a loop calls ends the process: `sys.exit()` behind a call, perhaps in another file."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from hangwatch.model import Frame, LoopFacts
from hangwatch.source.loops import loops_around
from hangwatch.source.syntax import ENDS_PROCESS, Function, called, functions_of, scope_of, within

_DEPTH = 3  # functions that call each other


def with_exits_behind_calls(loop: LoopFacts, trees: Mapping[str, ast.Module]) -> LoopFacts:
    """`loop` with the lines where functions that it calls end the process; one that ends it itself is as it was."""
    if loop.exits:
        return loop
    around = (each for each in (loop.where, *loop.outer) if each.file in trees)
    found = (place for each in around for place in _behind(each, trees[each.file]))
    return replace(loop, exits=tuple(dict.fromkeys(found)))


@lru_cache(maxsize=64)
def _behind(where: Frame, tree: ast.Module) -> tuple[Frame, ...]:
    loops = loops_around(scope_of(tree, where.line), where.line)
    loop = next((each for each in loops if each.lineno == where.line), None)
    ends = [] if loop is None else _ends(_called_in([loop]), tree, _DEPTH)
    return tuple(Frame(where.file, line, name) for line, name in ends)


def _ends(names: Iterable[str], tree: ast.Module, depth: int) -> Iterator[tuple[int, str]]:
    """Lines, with their functions, of what ends the process; of several functions of a name it is not known which."""
    for name in names:
        made = [each for each in functions_of(tree) if each.name == name]
        if len(made) != 1 or not depth:
            continue
        yield from ((line, name) for node in within(made[0]) if (line := _ends_process(node)))
        yield from _ends(_called_in(made[0].body) - {name}, tree, depth - 1)


def _ends_process(node: ast.AST) -> int | None:
    """Its line; None for anything else."""
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return node.lineno if getattr(raised, "id", "") == "SystemExit" else None
    return node.lineno if isinstance(node, ast.Call) and called(node) in ENDS_PROCESS else None


def _called_in(nodes: Iterable[ast.AST]) -> set[str]:
    calls = (part for node in nodes if not isinstance(node, Function) for part in (node, *within(node)))
    return {called(part) for part in calls if isinstance(part, ast.Call)} - {""}
