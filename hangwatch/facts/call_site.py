"""A call site: the path to a call, as the user's lines and the function that makes the call. A hint, never proof."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple

from hangwatch import words
from hangwatch.model import Collective, Frame
from hangwatch.ranks.flight_recorder import by_autograd
from hangwatch.ranks.ledger import family
from hangwatch.stacks.frames import ENGINE, name_of, of_origin, origin, user_frame, via

Path = tuple[tuple[str, int], ...]
Caller = tuple[str, str, int]  # file, function, line
NOT_KNOWN: Caller = ("", "", 0)
BACKWARD: Caller = ("", "backward", 0)  # the engine's own threads issue the gradients' calls, and have no frames


class Site(NamedTuple):
    """Where a call comes from.

    Below a trainer one line of the user's leads to every call, and one helper makes them all; there `via` tells one
    point of the program from another.
    """

    kind: str  # of operation; "" where it is not known
    lines: Path  # the user's lines that lead to it, innermost first
    caller: Caller = NOT_KNOWN  # the innermost function outside of torch: the user's own, or a framework's
    via: int = 0  # stands for all lines of packages that lead to it; 0 where it is not known, or there are none


@lru_cache(maxsize=8192)
def path(frames: tuple[Frame, ...]) -> Path:
    """The user's own lines in a call stack, innermost first."""
    own = tuple(frame.source_line for frame in of_origin(frames, "user"))
    where = user_frame(frames)
    return own or ((where.source_line,) if where is not None else ())


@lru_cache(maxsize=8192)
def whole_path(frames: tuple[Frame, ...]) -> Path:
    """The lines of the user and of packages in a call stack, innermost first: a trainer's loop has an order, too."""
    return tuple(each.source_line for each in frames if origin(each.file) in ("user", "package"))


@lru_cache(maxsize=8192)
def caller(frames: tuple[Frame, ...]) -> Caller | None:
    """The innermost line of the user or of a package; None where the frames show none."""
    own = of_origin(frames, "user", "package")
    return (own[0].file, name_of(own[0].function), own[0].line) if own else None


def recorded_caller(call: Collective) -> Caller | None:
    """Where a recorded call came from: a function, or the engine that computes gradients."""
    return caller(call.frames) or (BACKWARD if by_the_engine(call) else None)


def by_the_engine(call: Collective) -> bool:
    """A thread of the engine that computes gradients issued it."""
    return not call.frames and by_autograd(call)


def in_backward(call: Collective) -> bool:
    """It was issued while gradients were computed: below backward(), or by a thread of the engine."""
    return by_the_engine(call) or in_the_engine(call.frames)


def by_a_hook(call: Collective) -> bool:
    """The user's own function issued it, which the engine calls: a hook of DDP's communication, or of a tensor."""
    frames = [frame for frame in call.frames if not frame.native]
    below = list(takewhile(lambda frame: frame.function != ENGINE, frames))
    return len(below) < len(frames) and any(origin(frame.file) == "user" for frame in below)


def in_the_engine(frames: Iterable[Frame]) -> bool:
    """The engine that computes gradients runs in these frames."""
    return any(frame.function == ENGINE for frame in frames)


def site(call: Collective) -> Site | None:
    """Where a recorded call came from; None where that was not recorded."""
    found = recorded_site(call)
    return found if found.lines else None


def recorded_site(call: Collective) -> Site:
    """The same, without lines where none were recorded."""
    found = site_of(call.op, call.frames)
    return found._replace(via=call.via) if call.via else found


@lru_cache(maxsize=8192)
def site_of(op: str, frames: tuple[Frame, ...]) -> Site:
    """The site of a call of `op` that was made by `frames`."""
    return Site(family(op), path(frames), caller(frames) or NOT_KNOWN, via(frames))


def call_at(call: Collective) -> str:
    """`all_reduce (train.py:60)`: a recorded call, and the user's line that made it."""
    return f"{call.op}{words.at(user_frame(call.frames))}"


def framework(found: Site) -> Frame | None:
    """The framework's function that made the call; None where the user's own line did."""
    file, function, line = found.caller
    return Frame(file, line, function) if found.caller != NOT_KNOWN and (file, line) not in found.lines[:1] else None


def same(one: Site, other: Site) -> bool:
    """Equal as far as both are known: where only the innermost line was recorded, that decides."""
    if one.kind != other.kind and one.kind and other.kind:
        return False
    if framework(one) and framework(other) and (one.caller != other.caller or 0 != one.via != other.via != 0):
        return False
    shorter = min(len(one.lines), len(other.lines))
    return one.lines[:shorter] == other.lines[:shorter] if shorter == 1 else one.lines == other.lines


def comes_before(one: Path, other: Path) -> bool:
    """In the innermost function that both come through, the way to `one` leaves by an earlier line."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    apart = next((pair for pair in pairs if pair[0] != pair[1]), None)
    return apart is not None and apart[0][0] == apart[1][0] and apart[0][1] < apart[1][1]


def apart_from(place: Site, known: set[Site]) -> Frame | None:
    """The innermost line on the way to `place` by which none of the `known` sites is reached, if not its last line."""
    depths = (n for n in range(1, len(place.lines) + 1) if all(each.lines[:n] != place.lines[:n] for each in known))
    depth = next(depths, 1)
    return Frame(*place.lines[depth - 1], "") if depth > 1 else None


def from_one_line(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> bool:
    """Both stacks come through one line, which called another function in each: their order is not in the source."""
    return bool(_called_from_one_line(one, other))


def chosen_at_one_line(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> bool:
    """A line of the user's called another function of the user's in each: `MERGE[kind](tensors)`.

    A framework calls all of them from one line, one behind the other.
    """
    frames = _called_from_one_line(one, other)
    return bool(frames) and all(origin(frame.file) == "user" for frame in frames)


def _called_from_one_line(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The innermost line of both stacks, and the frames of the two functions that it called; () if it called one."""
    pairs = list(zip(reversed(one), reversed(other), strict=False))
    apart = next((number for number, pair in enumerate(pairs) if pair[0] != pair[1]), 0)
    if not apart or pairs[apart][0].scope == pairs[apart][1].scope:
        return ()
    return (pairs[apart - 1][0], *pairs[apart])


def at_the_end_of_its_block(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> bool:
    """`one` waits in the `__exit__` of a with block, inside of which `other` still is: it has gone past that place.

    Had `other` left the block, it would have come by that wait.
    """
    return _at_its_block(one, other, ("__exit__", "__aexit__")) is not None


def at_the_entry_of_its_block(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> Frame | None:
    """The line of the with block in whose `__enter__` `one` waits, and which `other` has entered; None for none."""
    return _at_its_block(one, other, ("__enter__", "__aenter__"))


def _at_its_block(one: tuple[Frame, ...], other: tuple[Frame, ...], methods: tuple[str, str]) -> Frame | None:
    """The line of the with block in one of whose `methods` `one` is, while `other` is further down.

    Frames tell it without the source: while such a method runs, its caller stands on the line of the with statement,
    and `other` further down in the same call of that function.
    """
    ours, theirs = ([frame for frame in stack if not frame.native] for stack in (one, other))
    for n, (method, block) in enumerate(pairwise(ours)):
        around = ours[n + 2 :]
        within = theirs[len(theirs) - len(around) - 1 :] if len(theirs) > len(around) else []
        found = name_of(method.function) in methods
        if found and within and within[1:] == around and within[0].scope == block.scope:
            return block if within[0].line > block.line else None
    return None
