"""What the user's source says of a stack: loops, except and finally blocks, signal handlers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from typing import Any, TypeVar

from hangwatch.model import Bypass, Frame, Hashed, LoopFacts, ThreadStack
from hangwatch.source.each_turn import each_turn
from hangwatch.source.entered import entered, entering
from hangwatch.source.exits import with_exits_behind_calls
from hangwatch.source.generators import with_ends_of_items
from hangwatch.source.guards import guard_around
from hangwatch.source.hash_order import by_hash
from hangwatch.source.imports import at_its_origin, with_imports
from hangwatch.source.loops import loop_around, loops_around, turns
from hangwatch.source.skip_paths import ways_past
from hangwatch.source.syntax import holds, parsed, scope_of, within
from hangwatch.source.updates import conditions_of_updates
from hangwatch.source.ways_out import with_ways_out
from hangwatch.stacks.frames import COMPREHENSIONS, name_of, of_origin, origin

T = TypeVar("T")
# Fields of a stack by its source.
TOLD = ("block", "handler", "in_loop", "loop", "guard", "entered", "entering", "each_turn")
_EVENT_LOOPS = re.compile(r"/asyncio/base_events\.py$|/(uvloop|trio|anyio|gevent|twisted)/")


def annotated(stack: ThreadStack, source_of: Callable[[str], str | None]) -> ThreadStack:
    """`stack` with what the user's source says of its frames: the block around them, and the loop that they stand in.

    `source_of` gives the text of a file, or None; it should remember what it has read, since ranks share their files.
    """
    own = of_origin(stack.frames, "user")
    sources = _texts(own, source_of)
    if not any(sources):
        return stack
    nothing: dict[str, Any] = {}
    told = _read(lambda: _told(own, sources, _suspends(stack.frames)), nothing)
    if told.get("in_loop") is False and _loops_in_packages(stack.frames, source_of):
        told = {**told, "in_loop": True}
    return replace(stack, **told)


def _texts(frames: tuple[Frame, ...], source_of: Callable[[str], str | None]) -> tuple[str | None, ...]:
    """The texts of the user's files in which these frames stand, each with what it imports from files of theirs."""
    return tuple(with_imports(frame.file, source_of) for frame in frames)


def _read(read: Callable[[], T], unknown: T) -> T:
    """What `read` says; `unknown` where an expression of the source is too deep for Python's own walks of it."""
    try:
        return read()
    except RecursionError:
        return unknown


def _loops_in_packages(frames: tuple[Frame, ...], source_of: Callable[[str], str | None]) -> bool:
    """A trainer's own loop stands between the user's line and the wait: over epochs, batches, or until it is done."""
    packages = of_origin(frames, "package")
    return _turns_in(packages, tuple(source_of(frame.file) for frame in packages))


@lru_cache(maxsize=256)
def _turns_in(frames: tuple[Frame, ...], sources: tuple[str | None, ...]) -> bool:
    return any(
        turns(loop)
        for frame, tree in _places(frames, sources)
        for loop in loops_around(scope_of(tree, frame.line), frame.line)
    )


def ways_past_call(
    frames: tuple[Frame, ...], source_of: Callable[[str], str | None], hooks: int | None = None
) -> tuple[Bypass, ...]:
    """How a turn of the loop can go on without the call to which the user's `frames` lead, innermost first.

    `hooks` is how many of them a package has called (see `hooks_of`), None where no package stands between them.
    """
    return _read(lambda: _ways_past(frames, _texts(frames, source_of), hooks), ())


@lru_cache(maxsize=256)
def _ways_past(frames: tuple[Frame, ...], sources: tuple[str | None, ...], hooks: int | None) -> tuple[Bypass, ...]:
    return ways_past(_places(frames, sources), hooks and len(_places(frames[:hooks], sources[:hooks])))


def follows_from_a_hash(frames: tuple[Frame, ...], source_of: Callable[[str], str | None]) -> Hashed | None:
    """What decides by a hash on the way to a call to which the user's `frames` lead, innermost first."""
    return _read(lambda: _by_hash(frames, _texts(frames, source_of)), None)


@lru_cache(maxsize=256)
def _by_hash(frames: tuple[Frame, ...], sources: tuple[str | None, ...]) -> Hashed | None:
    return by_hash(_places(frames, sources))


def inner_loop(
    frames: tuple[Frame, ...], source_of: Callable[[str], str | None], below: Frame | None = None
) -> LoopFacts | None:
    """The innermost loop around a call to which the user's `frames` lead, if another one lies around it.

    That may be one of a package, which has called these frames from there (`below`).
    """
    loop = _read(lambda: _inner_loop(frames, _texts(frames, source_of)), None)
    if loop is not None and below is not None:
        return replace(
            loop, outer=(*loop.outer, below), outer_leaves=(*loop.outer_leaves, ()), outer_items=(*loop.outer_items, "")
        )
    return loop if loop is not None and loop.outer else None


@lru_cache(maxsize=256)
def _inner_loop(frames: tuple[Frame, ...], sources: tuple[str | None, ...]) -> LoopFacts | None:
    return _loop_of(_places(frames, sources))


def _loop_of(places: Sequence[tuple[Frame, ast.Module]]) -> LoopFacts | None:
    loop = loop_around(places)
    if loop is None:
        return None
    trees = {frame.file: tree for frame, tree in places}
    loop = replace(loop, updates=conditions_of_updates(places))
    loop = with_exits_behind_calls(with_ends_of_items(loop, trees[loop.where.file]), trees)
    return _at_their_origins(with_ways_out(loop, trees), trees)


def _at_their_origins(loop: LoopFacts, trees: Mapping[str, ast.Module]) -> LoopFacts:
    """Its ways out that stand in what the user's file imports are told as places of the file that defines them."""

    def told(place: Frame) -> Frame:
        return at_its_origin(place, trees[place.file])

    return replace(
        loop,
        leaves=tuple(map(told, loop.leaves)),
        of_items=tuple(map(told, loop.of_items)),
        exits=tuple(map(told, loop.exits)),
        ways_out=tuple(replace(each, where=told(each.where)) for each in loop.ways_out),
    )


def hooks_of(frames: tuple[Frame, ...], source_of: Callable[[str], str | None] = lambda file: None) -> int | None:
    """How many of the user's innermost frames a package, such as a trainer, has called for one further out.

    A trainer may come to the user's code more than once on the way, as where an override calls what it overrides: all
    that its own loop has called is in one turn of it. Where no package's loop is seen, the innermost package counts.
    """
    before, found = 0, None
    for frame in frames:
        kind = "" if frame.native else origin(frame.file)
        takes_turns = kind == "package" and before and (found is None or _turns_in((frame,), (source_of(frame.file),)))
        found = before if takes_turns else found
        before += kind == "user"
    return found


def turns_above(frames: tuple[Frame, ...], hook: Frame, source_of: Callable[[str], str | None]) -> Frame | None:
    """Where a package that has called the user's `hook` stands in a loop of its own: each call is in a turn of that."""
    outside = takewhile(lambda frame: origin(frame.file) != "user", frames[frames.index(hook) + 1 :])
    above = of_origin(outside, "package")
    return next((frame for frame in above if _turns_in((frame,), (source_of(frame.file),))), None)


def rank_check_of(frames: tuple[Frame, ...], source_of: Callable[[str], str | None]) -> Bypass | None:
    """Where a package asks for the rank before it calls the user's function; None where none of its lines does so.

    Names in a package say less than those in the user's code: it is a reason to doubt, and no guard.
    """
    own = [n for n, frame in enumerate(frames) if not frame.native and origin(frame.file) == "user"]
    between = frames[own[0] + 1 : own[-1]] if own else ()
    packages = of_origin(between, "package")
    places = _places(packages, tuple(source_of(frame.file) for frame in packages))
    asked = next((place for place in places if guard_around([place]) == "rank"), None)
    return Bypass(asked[0], "a check of the rank", inner=False, asks="package") if asked is not None else None


def _places(frames: Sequence[Frame], sources: Sequence[str | None]) -> list[tuple[Frame, ast.Module]]:
    """The frames whose source could be read, each with its module."""
    trees = map(parsed, sources)
    found = [(frame, tree) for frame, tree in zip(frames, trees, strict=True) if tree is not None]
    return [place for n, place in enumerate(found) if not _is_part_of(place, found[n + 1 :])]


def _is_part_of(place: tuple[Frame, ast.Module], outer: Sequence[tuple[Frame, ast.Module]]) -> bool:
    """A comprehension, which older Pythons run in a frame of its own, in one of the functions further out."""
    frame, tree = place
    if name_of(frame.function) not in COMPREHENSIONS:
        return False
    scope = scope_of(tree, frame.line)
    return any(other is tree and scope_of(other, around.line) is scope for around, other in outer)


def _suspends(frames: Sequence[Frame]) -> bool:
    """An event loop runs on this stack: the coroutines that wait in it, and their loops, stand on no stack."""
    return any(_EVENT_LOOPS.search(frame.file) for frame in frames)


@lru_cache(maxsize=256)
def _told(frames: tuple[Frame, ...], sources: tuple[str | None, ...], suspends: bool) -> dict[str, Any]:
    """Fields of a stack with these frames of the user's. Remembered, for most ranks of a hung job wait in one place."""
    places = _places(frames, sources)
    if not places:
        return {}
    handlers = frozenset[str]().union(*(handlers_of(tree) for _, tree in places))
    loop = _loop_of(places)
    return {
        "block": next((found for frame, tree in places if (found := block_of(tree, frame.line))), ""),
        "in_loop": True if loop is not None else None if suspends else False,
        "handler": next((name for frame in frames[:-1] if (name := name_of(frame.function)) in handlers), ""),
        "loop": loop,
        "guard": guard_around(places),
        "entered": entered(places),
        "entering": entering(places),
        "each_turn": each_turn(places),
    }


@lru_cache(maxsize=64)
def handlers_of(tree: ast.Module) -> frozenset[str]:
    """Names of functions that a source passes to `signal.signal` or `add_signal_handler`."""
    return frozenset(_handlers(tree))


def _handlers(tree: ast.Module) -> Iterator[str]:
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


def block_of(tree: ast.Module, line: int) -> str:
    """The innermost "except" or "finally" block that holds `line` in its function; "" for none.

    A wait below them often hides the error that is the cause.
    """
    best, innermost = "", -1
    for node in within(scope_of(tree, line)):
        for kind, body in _blocks(node):
            if holds(body, line) and body[0].lineno > innermost:
                best, innermost = kind, body[0].lineno
    return best


def _blocks(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    if isinstance(node, ast.Try) and node.finalbody:
        yield "finally", node.finalbody
    elif isinstance(node, ast.ExceptHandler):
        yield "except", node.body
