"""The words for calls, groups and ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hangwatch import words
from hangwatch.model import Frame
from hangwatch.stacks.frames import origin, user_frame

from .matching import kind_of
from .model import Call, Communicator


def named(call: Call, number: int, group: Communicator) -> str:
    """all_reduce 101 of the default group"""
    if call.source is not None:
        return f"{call.op} of {group.title}"
    return f"{call.op} {number} of {group.title}"


def word(call: Call) -> str:
    """What a message is to the rank that made it."""
    return "send" if call.op == "send" else "receive"


def at(call: Call | None) -> str:
    """(train.py:71), (dist.py:12, called from train.py:71), or nothing where no line was recorded."""
    if call is None or call.where is None or call.caller is None:
        return words.at(call.where if call is not None else None)
    return f" ({words.place(call.where)}, called from {words.place(call.caller)})"


def apart(own: Call, usual: Call) -> tuple[Frame | None, Frame | None]:
    """The lines by which two calls are told apart: their own, else those further out at which their paths part.

    A helper of the program, or a library's, makes calls for many places of it from one line.
    """
    if own.where != usual.where:
        return own.where, usual.where
    for one, other in zip(reversed(own.frames), reversed(usual.frames), strict=False):
        if one != other:
            return one, other
    return own.where, usual.where


def telling_line(call: Call, calls: Iterable[Call]) -> Frame | None:
    """The innermost line of the program on the way to a call that no other one from the same place was made through.

    All layers of a model may call from one line, in training and elsewhere.
    """
    path = path_of(call)
    known = {frame for each in calls if each.where == call.where and path_of(each) != path for frame in path_of(each)}
    return next((frame for frame in reversed(path) if frame not in known), call.where) if known else call.where


def of_one_path(one: Call, other: Call) -> bool:
    """Whether two calls are one operation, and all lines that led to them are the same."""
    return kind_of(one) == kind_of(other) and bool(one.frames) and one.frames == other.frames


def path_of(call: Call) -> list[Frame]:
    """The lines of the program that led to a call, the outermost first."""
    return [frame for frame in reversed(call.frames) if origin(frame.file) in ("user", "package")]


def may_leave_a_loop(own: Call, usual: Call) -> bool:
    """Whether `own` may come behind a loop of the program in which `usual` is made.

    What no line of the user's makes is of a step, as in backward; and one line makes all calls of a step in which a
    framework's hooks gather and reduce.
    """
    lines = [[frame for frame in call.frames if origin(frame.file) == "user"] for call in (own, usual)]
    return bool(own.where and origin(own.where.file) == "user") and lines[0] != lines[1]


def of_no_line(call: Call) -> bool:
    """Whether a thread of torch's own made the call, or a hook of a library's: such a call is of a step."""
    return user_frame(call.frames) is None


def ranks(numbers: Iterable[int], *, capital: bool = False) -> str:
    return words.ranks(numbers, capital=capital)


def say(who: Collection[int], one: str, many: str, *, capital: bool = False) -> str:
    """`rank 3 waits`, `ranks 0-2 wait`: ranks, with the form of a verb that fits how many they are."""
    return f"{ranks(who, capital=capital)} {words.verb(len(who), one, many)}"
