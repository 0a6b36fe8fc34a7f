"""What stands where a loop can be left, by its source: `if guard.requested: break`. Hints, and never proof."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from hangwatch.model import LoopFacts, WayOut
from hangwatch.source.guards import answers_on_way
from hangwatch.source.loops import innermost_loop, scope_of, within


def with_ways_out(loop: LoopFacts, trees: Mapping[str, ast.Module]) -> LoopFacts:
    """The same loop with the texts of its ways out, and of those of the loops around it; `trees` are its files."""
    places = (*loop.leaves, *(each for leaves in loop.outer_leaves for each in leaves))
    told = {place: text for place in places if (text := _text(trees.get(place.file), place.line))}
    return replace(loop, ways_out=tuple(WayOut(place, text) for place, text in told.items()))


def _text(tree: ast.Module | None, line: int) -> str:
    """The statement on that line behind the condition right above it; "" for what is no way out."""
    scope = scope_of(tree, line) if tree is not None else None
    leaves = (node for node in (within(scope) if scope is not None else ()) if getattr(node, "lineno", 0) == line)
    node = next((node for node in leaves if isinstance(node, ast.While | ast.Break | ast.Return)), None)
    if scope is None or node is None:
        return ""
    if isinstance(node, ast.While):
        return f"while {ast.unparse(node.test)}"
    word = "break" if isinstance(node, ast.Break) else "return"
    loop = innermost_loop(scope, line)
    answers = [answer for answer in answers_on_way(loop or scope, line) if answer[0].lineno <= line]
    if not answers:
        return word
    test, held = answers[-1]
    return f"if {ast.unparse(test if held else ast.UnaryOp(ast.Not(), test))}: {word}"
