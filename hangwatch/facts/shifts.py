"""Calls mispaired before any two of them differed in kind: one side's calls are the other's, some places later.

A call too many, or too few, shows under the very next number only where the two calls that meet there differ in kind or
size. A barrier meets another barrier and both go on, and the job comes to a stand at an innocent pair further on. The
whole call paths tell the first pair that did not belong together, and how many calls one side had more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangwatch.facts.case import Case, once
from hangwatch.facts.mismatches import Mismatch, first_mismatch, threads_of
from hangwatch.model import Collective
from hangwatch.ranks.ledger import family
from hangwatch.stacks.frames import origin

MOST = 8  # calls by which one side may be ahead
SHIFTED_WITHIN = 64  # numbers before the one at which the calls differ
Token = tuple[object, ...]


@dataclass(frozen=True)
class Shift:
    """From number `seq` of a group on, `more` made `calls` and only then what `fewer` made at once."""

    found: Mismatch
    seq: int
    more: tuple[int, ...]
    fewer: tuple[int, ...]
    calls: tuple[Collective, ...]


@once
def shift(case: Case) -> Shift | None:
    """The one shift that explains the first mismatch; None where there is none, or more than one would do."""
    found = first_mismatch(case)
    if found is None or threads_of(case, found):
        return None
    history = {rank: _history(case, found, rank) for rank in found.calls}
    first = _first_apart(found.seq, history)
    sides = _sides(history, first, found.seq)
    if first == found.seq or len(sides) != 2:
        return None
    one, other = sides
    shifts = [each for each in (_by(found, first, one, other), _by(found, first, other, one)) if each is not None]
    return shifts[0] if len(shifts) == 1 else None


_Side = tuple[tuple[int, ...], tuple[Collective, ...]]  # ranks, and what they called from the first number on


def _history(case: Case, found: Mismatch, rank: int) -> dict[int, Collective]:
    numbers = range(max(found.seq - SHIFTED_WITHIN, 1), found.seq + 1)
    return {seq: call for seq in numbers if (call := case.ledger.call(rank, found.group.name, seq)) is not None}


def _first_apart(last: int, history: Mapping[int, Mapping[int, Collective]]) -> int:
    """The first of the numbers up to `last` at which, without a gap, the paths of the ranks differ."""
    first = last
    while all(first - 1 in calls for calls in history.values()):
        if len({_token(calls[first - 1]) for calls in history.values()}) == 1:
            return first
        first -= 1
    return last  # no common path is on record before: where they parted cannot be said


def _sides(history: Mapping[int, Mapping[int, Collective]], first: int, last: int) -> list[_Side]:
    """The ranks by what they called since."""
    sides: dict[tuple[Token, ...], _Side] = {}
    for rank, calls in history.items():
        since = tuple(calls[seq] for seq in range(first, last + 1) if seq in calls)
        tokens = tuple(map(_token, since))
        sides[tokens] = ((*sides[tokens][0], rank) if tokens in sides else (rank,), since)
    return list(sides.values())


def _by(found: Mismatch, first: int, more: _Side, fewer: _Side) -> Shift | None:
    """The fewest calls that `more` must have made first for the rest to be what `fewer` called."""
    theirs, ours = [_token(call) for call in more[1]], [_token(call) for call in fewer[1]]
    for extra in range(1, min(MOST, len(theirs) - 1) + 1):
        if theirs[extra:] == ours[: len(theirs) - extra] and not set(theirs[:extra]) & set(ours):
            return Shift(found, first, more[0], fewer[0], more[1][:extra])
    return None


def _token(call: Collective) -> Token:
    """What was called, and all of the user's and the frameworks' lines that led to it."""
    lines = (f for f in call.frames if not f.native and origin(f.file) in ("user", "package"))
    return (family(call.op), *((frame.file, frame.line) for frame in lines))
