"""What the user's source says of a stack: loops, except and finally blocks, signal handlers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

from .frames import name_of, origin
from .guard_source import guard_around
from .loop_source import loop_around
from .records import ThreadStack


def annotated(stack: ThreadStack, source_of: Callable[[str], str | None]) -> ThreadStack:
    """`stack` with what the user's source says of its frames: the block around them, and whether any is in a loop.

    `source_of` gives the text of a file, or None; it should remember what it has read, since ranks share their files.
    """
    own = [frame for frame in stack.frames if not frame.native and origin(frame.file) == "user"]
    trees = {file: _tree(source_of(file)) for file in {frame.file for frame in own}}
    known = [(tree, frame.line) for frame in own if (tree := trees[frame.file]) is not None]
    if not known:
        return stack
    block = next((found for tree, line in known if (found := block_of(tree, line))), "")
    handlers = {name for tree in trees.values() if tree is not None for name in handlers_of(tree)}
    handler = next((name for frame in own[:-1] if (name := name_of(frame.function)) in handlers), "")
    places = [(frame, tree) for frame in own if (tree := trees[frame.file]) is not None]
    return replace(
        stack,
        block=block,
        in_loop=any(in_loop(tree, line) for tree, line in known),
        handler=handler,
        loop=loop_around(places),
        guard=guard_around(places),
    )


def handlers_of(tree: ast.Module) -> Iterator[str]:
    """Names of functions that a source passes to `signal.signal` or `add_signal_handler`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or len(node.args) < 2:
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        handler = node.args[1]
        if called in ("signal", "add_signal_handler"):
            if isinstance(handler, ast.Attribute):
                yield handler.attr
            elif isinstance(handler, ast.Name):
                yield handler.id


def _tree(source: str | None) -> ast.Module | None:
    try:
        return None if source is None else _parsed(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=64)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def in_loop(tree: ast.Module, line: int) -> bool:
    """`line` stands in the body of a for or while statement of its function."""
    spans = [(body[0].lineno, _last(body), loop) for body, loop in _bodies(tree)]
    around = [(first, loop) for first, last, loop in spans if first <= line <= last]
    functions = [first for first, loop in around if not loop]
    return any(loop and first >= max(functions, default=0) for first, loop in around)


def _bodies(tree: ast.Module) -> Iterator[tuple[list[ast.stmt], bool]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While | ast.AsyncFor):
            yield node.body, True
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.body, False


def _last(body: list[ast.stmt]) -> int:
    return max(part.end_lineno or part.lineno for part in body)


def block_of(tree: ast.Module, line: int) -> str:
    """The innermost "except" or "finally" block that holds `line` in its function; "" for none.

    A wait below them often hides the error that is the cause.
    """
    best, innermost = "", -1
    for node in ast.walk(tree):
        for kind, body in _blocks(node):
            first, last = body[0].lineno, _last(body)
            if first <= line <= last and first > innermost:
                best, innermost = kind, first
    return best


def _blocks(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    if isinstance(node, ast.Try) and node.finalbody:
        yield "finally", node.finalbody
    elif isinstance(node, ast.ExceptHandler):
        yield "except", node.body
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield "", node.body
