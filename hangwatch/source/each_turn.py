"""Whether each turn of a training loop comes to where a thread stands: what it did before, it did in a step's time.

Code that only some turns come to (an evaluation, a checkpoint, the next shard of the data) may take long. Code that
each of many turns has come through does not take a thousand times as long at once, unless something in it has no end.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from hangwatch.model import Frame
from hangwatch.source.guards import caches, conditions_to
from hangwatch.source.loops import LOOPS, loops_around
from hangwatch.source.syntax import SCOPES, called, functions_of, holds, scope_of, within
from hangwatch.source.updates import is_update

_DEPTH = 3  # functions behind a call in which an update is looked for
_MAKE_ITEMS = frozenset({"__getitem__", "__next__"})  # are called for each item, by what goes through a loader


def each_turn(frames: Sequence[tuple[Frame, ast.Module]]) -> Frame | None:
    """The line of a loop that updates the model in each turn, if each turn leads from it to the innermost of `frames`.

    The user's `frames` (each with its module) are innermost first. None where a condition or an except clause lies on
    the way, or the loop asks for its next item where not each one comes by it.
    """
    makes_item = False  # the frame within comes to its line for each item that it gives
    for frame, tree in frames:
        scope = scope_of(tree, frame.line)
        loops = loops_around(scope, frame.line)
        training = next((place for place, loop in enumerate(loops) if _updates(loop.body, tree, _DEPTH)), None)
        yields = _yields(scope)
        giving = next((place for place, loop in enumerate(loops) if _gives_one(loop, yields)), None)
        turn = giving if yields else training
        if yields and (turn is None or training is not None):
            return None
        around = scope if turn is None else loops[turn]
        inner = loops[:turn]  # a loop within the turn is come to as often, whatever it does there
        line = inner[-1].lineno if inner else frame.line
        if caches(scope) or _is_at_times(around, line):
            return None
        if training is not None:
            asks_for_item = line < loops[training].body[0].lineno
            return None if asks_for_item and not makes_item else Frame(frame.file, line, frame.function)
        makes_item = bool(yields) or getattr(scope, "name", "") in _MAKE_ITEMS
    return None


def _yields(scope: ast.AST) -> list[ast.expr]:
    return [node for node in within(scope) if isinstance(node, ast.Yield | ast.YieldFrom)]


def _gives_one(loop: ast.stmt, yields: Sequence[ast.expr]) -> bool:
    """Each turn of this loop of a generator gives one item: what is read for many items at once is read at times."""
    if len(yields) != 1 or isinstance(yields[0], ast.YieldFrom):
        return False
    line = yields[0].lineno
    in_turn = any(node is yields[0] for part in getattr(loop, "body", ()) for node in _outside_of_loops(part))
    return in_turn and not _is_at_times(loop, line)


def _is_at_times(around: ast.AST, line: int) -> bool:
    """Not each turn of the loop `around`, or not each call of that function, comes to this line of it."""
    clauses = (node for node in within(around) if isinstance(node, ast.ExceptHandler | ast.match_case))
    if any(holds(clause.body, line) for clause in clauses) or any(conditions_to(around, line)):
        return True
    return any(at < line for at in _turns_back(around))


def _turns_back(around: ast.AST) -> Iterator[int]:
    """Lines that end this turn, or this call; what only leaves a loop further in does not."""
    for node in ast.iter_child_nodes(around):
        if isinstance(node, ast.Return | ast.Break | ast.Continue):
            yield node.lineno
        elif isinstance(node, LOOPS):
            yield from (part.lineno for part in within(node) if isinstance(part, ast.Return))
        elif not isinstance(node, SCOPES):
            yield from _turns_back(node)


def _updates(body: Sequence[ast.stmt], tree: ast.Module, depth: int) -> bool:
    """Once for each turn, there or in what it calls, and not in a loop within it: that one makes the turns then."""
    calls = [node for part in body for node in _outside_of_loops(part) if isinstance(node, ast.Call)]
    if any(map(is_update, calls)):
        return True
    names = {called(call) for call in calls} if depth else set[str]()
    return any(_updates(each.body, tree, depth - 1) for each in functions_of(tree) if each.name in names)


def _outside_of_loops(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, (*SCOPES, *LOOPS)):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _outside_of_loops(child)
