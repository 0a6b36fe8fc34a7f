"""What stands where a loop can be left, by its source: `if guard.requested: break`. Hints, and never proof."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from hangwatch.model import LoopFacts, WayOut
from hangwatch.source.syntax import SCOPES, scope_of

_Condition = ast.If | ast.ExceptHandler | ast.match_case


def with_ways_out(loop: LoopFacts, trees: Mapping[str, ast.Module]) -> LoopFacts:
    """The same loop with the texts of its ways out, and of those of the loops around it; `trees` are its files."""
    places = dict.fromkeys((*loop.leaves, *(each for leaves in loop.outer_leaves for each in leaves)))
    scopes = {place: scope_of(trees[place.file], place.line) for place in places if place.file in trees}
    known = {scope: dict(_ways(scope)) for scope in set(scopes.values())}
    told = ((place, known[scope].get(place.line)) for place, scope in scopes.items())
    return replace(loop, ways_out=tuple(WayOut(place, _text(*way)) for place, way in told if way is not None))


def _ways(
    node: ast.AST, above: _Condition | None = None, *, otherwise: bool = False
) -> Iterator[tuple[int, tuple[ast.stmt, _Condition | None, bool]]]:
    """Each `while`, `break` and `return` of a function by its line, with the condition right above it in its loop."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, SCOPES) or not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue
        own, other = above, otherwise
        if isinstance(node, _Condition):
            own, other = node, isinstance(node, ast.If) and child in node.orelse
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While) and child not in node.orelse:
            own, other = None, False  # what leads to a loop says nothing of its end
        if isinstance(child, ast.While | ast.Break | ast.Return):
            yield child.lineno, (child, own, other)
        yield from _ways(child, own, otherwise=other)


def _text(node: ast.stmt, above: _Condition | None, otherwise: bool) -> str:
    if isinstance(node, ast.While):
        return f"while {ast.unparse(node.test)}"
    word = "break" if isinstance(node, ast.Break) else "return"
    if isinstance(above, ast.If):
        return f"if {ast.unparse(ast.UnaryOp(ast.Not(), above.test) if otherwise else above.test)}: {word}"
    if isinstance(above, ast.ExceptHandler):
        return f"except {ast.unparse(above.type)}: {word}" if above.type is not None else f"except: {word}"
    return f"case {ast.unparse(above.pattern)}: {word}" if above is not None else word
