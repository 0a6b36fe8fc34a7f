"""Conditions on the rank that lead to one function both ways: they change when a rank comes there, and not whether."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from hangwatch.source.syntax import called, holds, within

Condition = tuple[str, bool]  # the text of what is asked, without its negations, and the answer that leads there
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In}


def called_both_ways(scope: ast.AST, line: int, function: str, asks_rank: Callable[[ast.AST], bool]) -> bool:
    """`function` is called on `line` for some ranks, and elsewhere in `scope` for those that are not among them."""
    mine = set(_conditions(scope, line, asks_rank))
    others = {node.lineno for node in within(scope) if isinstance(node, ast.Call) and called(node) == function} - {line}
    theirs = {each for other in others for each in _conditions(scope, other, asks_rank)}
    return any((asked, not answer) in theirs for asked, answer in mine)


def _conditions(scope: ast.AST, line: int, asks_rank: Callable[[ast.AST], bool]) -> Iterator[Condition]:
    for node in within(scope):
        if not isinstance(node, ast.If):
            continue
        for answer, block in ((True, node.body), (False, node.orelse)):
            if holds(block, line):
                yield from (_plain(part, answer) for part in _parts(node.test, answer) if asks_rank(part))


def _parts(test: ast.expr, answer: bool) -> list[ast.expr]:
    """What surely has that answer: all parts of `a and b` where it is true, of `a or b` where it is not."""
    kind = ast.And if answer else ast.Or
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, kind) else [test]


def _plain(test: ast.expr, answer: bool) -> Condition:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _plain(test.operand, not answer)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITE:
        test = ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators)
        answer = not answer
    return ast.unparse(test), answer
