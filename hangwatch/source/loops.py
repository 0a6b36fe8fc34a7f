"""What the source says of the loop in which a thread stands: how one turn of it, or all of it, can end before its time.

A rank that is a turn short of the others has left no trace of why. The others still stand in the loop, and its text
shows the ways that there are: a `continue`, an except clause that goes on, a `break`. Hints, and never proof.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from hangwatch.model import Frame, LoopFacts
from hangwatch.source.limits import counts, ends_by_itself
from hangwatch.source.swallowed import clauses, named, swallowing
from hangwatch.source.syntax import ENDS_PROCESS, SCOPES, Function, called, holds, scope_of, within
from hangwatch.stacks.frames import name_of

_Loop = ast.For | ast.AsyncFor | ast.While
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LONGEST = 60  # characters of what a loop goes through
_ENDS_DATA = frozenset({"StopIteration", "StopAsyncIteration"})
_OF_STORES = frozenset({"get", "add", "check", "wait", "compare_set", "multi_get", "num_keys"})
_COUNTERS = frozenset({"range", "trange", "count"})
_OF_PARTS = frozenset({"self", "enumerate", "zip", "reversed", "range", "len", "list"})  # of `zip(self.a, self.b)`
_BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.While, ast.Break, ast.Continue, ast.Return)
_DRESSED = frozenset({"enumerate", "tqdm", "track"})


def loop_around(frames: Sequence[tuple[Frame, ast.Module]]) -> LoopFacts | None:
    """The loop in which the innermost of the user's `frames` (each with its module) stand; None where there is none."""
    skips: list[Frame] = []
    for index, (frame, tree) in enumerate(frames):
        scope = scope_of(tree, frame.line)
        caller_of = name_of(frames[index - 1][0].function) if index else ""
        loop = _comprehension(scope, frame.line, caller_of) or innermost_loop(scope, frame.line)
        if loop is None or _makes_turns_for_another(loop) or _is_through_layers(frame, loop):
            skips += [Frame(frame.file, line, frame.function) for line in swallowing(scope, frame.line, tree)]
            continue
        further = [
            (f, each)
            for f, t in frames[index:]
            for each in loops_around(scope_of(t, f.line), f.line)
            if each is not loop
        ]
        loops = [(frame, loop), *further]
        exits = {place for f, each in loops for place in _places(f, _lines(each).exits)}
        around = [(frame, scope, loop.lineno, tree)] + [
            (f, scope_of(module, f.line), f.line, module) for f, module in frames[index + 1 :]
        ]
        outside = [Frame(f.file, line, f.function) for f, s, at, module in around for line in swallowing(s, at, module)]
        return LoopFacts(
            Frame(frame.file, loop.lineno, frame.function),
            counted=_is_counted(loop),
            skips=(*skips, *_places(frame, _skips(loop, tree))),
            leaves=_places(frame, _lines(loop).leaves),
            swallows=outside[0] if outside else None,
            outer=tuple(Frame(f.file, each.lineno, f.function) for f, each in further),
            outer_leaves=tuple(_places(f, _lines(each).leaves) for f, each in further),
            exits=tuple(sorted(exits, key=lambda place: place.source_line)),
            asks_store=_asks_store(loop, tree),
            endless=_is_endless(loop),
            bounded=ends_by_itself(loop),
            last=max(part.end_lineno or part.lineno for part in loop.body),
            items=_items(loop),
            outer_items=tuple(_items(each) for _, each in further),
            drained=tuple(place for f, each in loops for place in _places(f, _lines(each).drained)),
        )
    return None


@lru_cache(maxsize=64)
def _comprehension(scope: ast.AST, line: int, function: str) -> ast.For | None:
    """The comprehension at `line` that calls that function of the program's for each item, as the loop that it is."""
    for node in within(scope) if function else ():
        if not isinstance(node, _COMPREHENSIONS) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        made = node.value if isinstance(node, ast.DictComp) else node.elt
        if any(called(part) == function for part in ast.walk(made)):
            first = node.generators[0]
            body: list[ast.stmt] = [ast.copy_location(ast.Expr(made), made)]
            return ast.copy_location(ast.For(first.target, first.iter, body, []), node)
    return None


@lru_cache(maxsize=64)
def _makes_turns_for_another(loop: _Loop) -> bool:
    """It yields what the loop of a caller goes through: that one says how often, unless this one is left by itself."""
    yields = any(isinstance(node, ast.Yield) for part in loop.body for node in (part, *within(part)))
    return yields and not _lines(loop).leaves


@lru_cache(maxsize=64)
def _is_through_layers(frame: Frame, loop: _Loop) -> bool:
    """In the forward of a module, through parts of its own without a condition: as many turns on each rank, always."""
    if not isinstance(loop, ast.For) or name_of(frame.function) != "forward":
        return False
    names = {node.id for node in ast.walk(loop.iter) if isinstance(node, ast.Name)}
    return "self" in names <= _OF_PARTS and not any(isinstance(node, _BRANCHES) for node in within(loop))


def _items(loop: _Loop) -> str:
    return "" if isinstance(loop, ast.While) else _clipped(ast.unparse(loop.iter))


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class _Lines(NamedTuple):
    """Lines of a loop: where all of it can end early, with its iterator, or with the process."""

    leaves: tuple[int, ...]
    drained: tuple[int, ...]
    exits: tuple[int, ...]


@lru_cache(maxsize=64)
def _lines(loop: _Loop) -> _Lines:
    """Remembered: many calls may stand in one loop."""
    leaves = sorted((*_by_condition(loop), *_left_from(loop.body)))
    return _Lines(tuple(leaves), tuple(_drained(loop)), tuple(sorted(set(_exits(loop)))))


@lru_cache(maxsize=64)
def _skips(loop: _Loop, tree: ast.Module) -> tuple[int, ...]:
    """Where a turn can end early."""
    return tuple(sorted((*_own(loop.body, ast.Continue), *_going_on(loop.body, tree))))


def _is_endless(loop: _Loop) -> bool:
    """`while True`, which is not left; an error that takes it out is no plan."""
    constant = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant)
    return constant and not _lines(loop).leaves and not _lines(loop).exits


def _places(frame: Frame, lines: Iterable[int]) -> tuple[Frame, ...]:
    """Those lines of the function of `frame`."""
    return tuple(Frame(frame.file, line, frame.function) for line in lines)


def _left_from(body: Sequence[ast.stmt]) -> Iterator[int]:
    """Lines of `break` and `return` by which this part of a loop leaves it."""
    yield from _own(body, ast.Break)
    yield from _own(body, ast.Return, nested=True)


def _drained(loop: _Loop) -> list[int]:
    """Lines where it is left because an iterator that it asks itself has ended, as a `for` ends by itself.

    These are the `break` of `except StopIteration`, and that of `if batch is None` for a `batch = next(source, None)`.
    """
    nodes = list(within(loop))
    asked = {
        ast.unparse(target)
        for node in nodes
        if isinstance(node, ast.Assign) and called(node.value) == "next" and len(node.value.args) > 1  # type: ignore[attr-defined]
        for target in node.targets
    }
    ended = [node.body for node in nodes if isinstance(node, ast.ExceptHandler) and named(node.type) & _ENDS_DATA]
    ended += [node.body for node in nodes if isinstance(node, ast.If) and _is_none(node.test) in asked]
    left = set(_left_from(loop.body))
    return sorted(left & {line for body in ended for line in _left_from(body)})


def _is_none(test: ast.expr) -> str | None:
    """What is compared in `batch is None`."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Is):
        return None
    other = test.comparators[0]
    return ast.unparse(test.left) if isinstance(other, ast.Constant) and other.value is None else None


def _exits(loop: _Loop) -> Iterator[int]:
    """Where it ends the process: `sys.exit()`, `raise SystemExit`."""
    for statement in loop.body:
        for node in (statement, *within(statement)) if not isinstance(statement, SCOPES) else ():
            if (isinstance(node, ast.Call) and called(node) in ENDS_PROCESS) or (
                isinstance(node, ast.Raise) and "SystemExit" in _raised(node)
            ):
                yield node.lineno


def _raised(node: ast.Raise) -> set[str]:
    return named(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)


def innermost_loop(scope: ast.AST, line: int) -> _Loop | None:
    """The loop of this very function in whose body `line` stands."""
    return next(iter(loops_around(scope, line)), None)


def loops_around(scope: ast.AST, line: int) -> list[_Loop]:
    """The loops of a function around `line`, the innermost first.

    Its first line counts too: there a `for` asks for the next item, which is where a rank stands that waits for data.
    """
    return [loop for loop in _loops(scope) if _around(loop, line)][::-1]


@lru_cache(maxsize=64)
def _loops(scope: ast.AST) -> tuple[_Loop, ...]:
    """All loops of a function. Remembered: many calls may stand in one."""
    return tuple(node for node in within(scope) if isinstance(node, _Loop))


def turns(loop: _Loop) -> bool:
    """A loop over what is counted or drawn, or until something is done; not one over the parts of a collection.

    Trainers call their hooks in loops over callbacks, which say nothing of how far the training is.
    """
    return isinstance(loop, ast.While) or isinstance(loop.iter, ast.Call)


def _around(loop: _Loop, line: int) -> bool:
    return loop.lineno <= line < loop.body[0].lineno or holds(loop.body, line)


def _by_condition(loop: _Loop) -> Iterator[int]:
    """The line of a `while` that asks for more than a number: `while error > tolerance`, `while not self.stop`."""
    if not _is_counted(loop) and isinstance(loop, ast.While):
        yield loop.lineno


def _own(body: Sequence[ast.stmt], kind: type[ast.stmt], *, nested: bool = False) -> Iterator[int]:
    """Lines of `continue`, `break` or `return` in a loop with this body; with `nested`, in the loops in it too."""
    for node in body:
        if isinstance(node, kind):
            yield node.lineno
        elif not isinstance(node, SCOPES) and (nested or not isinstance(node, LOOPS)):
            children = ast.iter_child_nodes(node)
            below = [child for child in children if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case)]
            yield from _own(below, kind, nested=nested)  # type: ignore[arg-type]


def _going_on(body: Sequence[ast.stmt], tree: ast.Module) -> Iterator[int]:
    """Lines of clauses in a loop's body that swallow an error, after which its next turn follows."""
    for top in body:
        for node in (top, *within(top)):
            for line, handler in clauses(node, tree):
                if not any(isinstance(part, ast.Break | ast.Return | ast.Continue) for part in handler):
                    yield line


def _asks_store(loop: _Loop, tree: ast.Module) -> bool:
    """A call of a store's, in the loop or in a function of that file which it asks: `while not self.all_came()`."""
    asked = [node.test for node in (loop, *within(loop)) if isinstance(node, ast.While | ast.If)]
    names = {called(node) for test in asked for node in ast.walk(test)} - {""}
    ahead = ast.walk(tree) if names else ()
    functions = (node for node in ahead if isinstance(node, Function) and node.name in names)
    return any(_is_of_store(node) for part in (loop, *functions) for node in within(part))


def _is_of_store(node: ast.AST) -> bool:
    """On something that is named a store: `int(self.store.get(key)) < ranks`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in _OF_STORES and "store" in ast.unparse(node.func.value).lower()


def _is_counted(loop: _Loop) -> bool:
    """It makes as many turns as a number says, which tends to be the same on all ranks."""
    if isinstance(loop, ast.While):
        return isinstance(loop.test, ast.Constant) or (isinstance(loop.test, ast.Compare) and counts(loop, loop.test))
    turns: ast.AST = loop.iter
    while called(turns) in _DRESSED and isinstance(turns, ast.Call) and turns.args:
        turns = turns.args[0]
    return called(turns) in _COUNTERS and not any(called(node) == "len" for node in ast.walk(turns))
