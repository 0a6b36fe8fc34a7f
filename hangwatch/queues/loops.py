"""A loop that a rank left, or went on with, when the others did not: told by how the same loop ended before."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from .readings import Kind, Reading, regular
from .turns import rounds

RARE = 2  # a call that ended so few loops before comes after an epoch; one that comes more often is of the loop


def left_as_before(before: Sequence[int], own: int, usual: int) -> int:
    """How often the order of calls had left its loop to `own` from where it now does, and the others go on to `usual`.

    0 where it never went on to `usual` there, or never left to `own`: that is no end of a loop.
    """
    if not before:
        return 0
    behind = [other for one, other in pairwise(before) if one == before[-1]]
    return behind.count(own) if 0 < behind.count(own) < behind.count(usual) else 0


def visits(before: Sequence[int], own: int, round_: int) -> int:
    """How often the order of calls had come to `own` from rounds, each of which has the call `round_`.

    An evaluation makes its call many times, and counts once.
    """
    came = 0
    inside = False
    for token in before:
        if token == own and not inside:
            came, inside = came + 1, True
        elif token == round_:
            inside = False
    return came


def as_ever(before: Sequence[int], own: int, round_: int) -> bool:
    """Whether the order of calls comes to `own` after as many rounds as each time before.

    Of the rounds before the oldest visit some may no longer be recorded.
    """
    counts = rounds(before, own, round_)
    whole = counts[1:] if len(counts) > 2 and counts[0] < counts[1] else counts
    return len(whole) > 1 and len(set(whole)) == 1


def in_its_turn(row: array[int], place: int, round_: int) -> bool:
    """Whether the call at a place came after as many rounds as ever: calls of another period may hide that."""
    return as_ever(row[:place], row[place], round_)


def left_out_once(row: Sequence[int], usual: Sequence[int], place: int) -> bool:
    """Whether the rank came to the others' call again after as many rounds as lie between two of them ever.

    Then it left that call out once. With a round more than the others it would have come to it right behind that one.
    """
    wanted, round_ = usual[place], row[place]
    behind = row[place:]
    if wanted not in behind:
        return False
    until = [*usual[:place], wanted, *behind[: behind.index(wanted)]]
    return as_ever(until, wanted, round_)


def longest(before: Sequence[int], own: int, round_: int) -> int:
    """The most rounds that came before a visit to `own`."""
    return max(rounds(before, own, round_))


def ended(reading: Reading, row: array[int], usual: array[int], place: int) -> bool:
    """Whether the calls left out make up a round at least, and what came instead has come rarely, between rounds."""
    return _left_rounds(reading, usual, place) and visits(usual[:place], row[place], usual[place]) <= RARE


def _left_rounds(reading: Reading, usual: array[int], place: int) -> bool:
    """Whether the calls left out make up a round at least."""
    before, round_ = usual[:place], usual[place]
    if reading.kind is not Kind.SKIPPED or round_ not in before:
        return False
    latest = place - 1 - before[::-1].index(round_)
    left_out, last = usual[place : place + reading.count], before[latest:]
    if last[: len(left_out)] != left_out:
        return len(last) <= reading.count
    often, beside = Counter(before), last[len(left_out) :]  # calls that not each round has, a few
    return len(beside) < len(left_out) and all(often[token] < often[round_] for token in beside)


def ends(reading: Reading, row: array[int], usual: array[int], place: int) -> tuple[int, int]:
    """How often the loop had ended as one of the sides has it end here, where the other goes on: (this rank's, theirs).

    Only where no better reading is known, or whole rounds were left out. A rank that goes on looks as if it had left
    out the call behind the loop.
    """
    unread = (reading.kind is Kind.OTHER and not reading.agreeing) or _left_rounds(reading, usual, place)
    left = left_as_before(row[:place], row[place], usual[place]) if unread else 0
    if left > RARE and regular(row, place):
        return 0, 0  # a call of some rounds, and of this one by their order: it is the others who went on
    if left or not (unread or (reading.kind is Kind.SKIPPED and reading.count == 1)):
        return left, 0
    if left_out_once(row, usual, place):
        return 0, 0
    stayed = left_as_before(usual[:place], usual[place], row[place])
    return 0, stayed if stayed <= RARE else 0


def turn_again(row: array[int], place: int, count: int) -> bool:
    """Whether the calls that were added are, one by one, those right before them: a turn of a loop, not one call."""
    return count > 1 and row[max(place - count, 0) : place] == row[place : place + count]
