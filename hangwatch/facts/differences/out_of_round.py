"""Ranks that are calls ahead in a round of calls that comes again and again: a step, or a loop over parameters.

A rank's call is one that in all its rounds before came behind the call which the other ranks make under that number:
so it has left that one out. Calls of one place are told apart by their sizes and roots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangwatch.facts.calls.call_sites import HABIT
from hangwatch.facts.calls.mismatches import Mismatch, Token, as_they_parted, both_ways, mispaired, token, tokens_before
from hangwatch.facts.case import Case, once
from hangwatch.ranks.sides import spread

_CALLS_BEFORE = 2  # calls before that tell where in its round a rank is
_AHEAD = 16  # calls of a round that are looked for behind the one that was due


@dataclass(frozen=True)
class OutOfRound:
    """`ranks` left out `missing` calls, of which `due` is the first, and made `own`, unlike in `rounds` before."""

    found: Mismatch
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    due: Token
    own: Token
    missing: int
    rounds: int


@once
def out_of_round(case: Case) -> OutOfRound | None:
    """By the calls under the first number that parts; None where both sides may be ahead, or the other one lags."""
    found = mispaired(case)
    parted = as_they_parted(case, found) if found is not None else None
    ways = both_ways(parted) if parted is not None else ()
    each = [_ahead(case, parted, *way) for way in ways if parted is not None]
    known = [ahead for ahead in each if ahead is not None]
    return known[0] if len(known) == 1 else None


def _ahead(case: Case, found: Mismatch, ranks: tuple[int, ...], others: tuple[int, ...]) -> OutOfRound | None:
    """All of `ranks` are, by their own rounds."""
    due, own = token(found.calls[others[0]]), token(found.calls[ranks[0]])
    if due is None or own is None:
        return None
    asked = [(rank, found.calls[rank]) for rank in spread(ranks)]
    each = [
        _missing(tokens_before(case, rank, call), due, own, case.ledger.step_of(rank, call)) for rank, call in asked
    ]
    if None in each or len({missing for missing, _ in filter(None, each)}) != 1:
        return None
    missing, rounds = each[0] or (0, 0)
    return OutOfRound(found, ranks, others, due, own, missing, rounds)


def _missing(
    made: Sequence[tuple[int | None, Token | None]], due: Token, own: Token, now: int | None
) -> tuple[int, int] | None:
    """How many calls lie between the last one made and `own` in each round before, and how many rounds show it.

    `now` is the step of `own`: a call of the next step in every round, and of the same one now, was made again.
    """
    tokens = [each for _, each in made]
    last = tokens[-_CALLS_BEFORE:]
    counts, steps, rounds = set(), set(), 0
    for start in range(len(made) - _CALLS_BEFORE):
        end = start + _CALLS_BEFORE
        if tokens[start:end] != last:
            continue
        behind = tokens[end : end + _AHEAD]
        if behind[0] != due or own not in behind[1:]:
            return None
        rounds, place = rounds + 1, behind.index(own, 1)
        counts.add(place)
        steps.add(_steps_on(made[end - 1][0], made[end + place][0]))
    as_usual = rounds >= HABIT and len(counts) == 1 and _steps_on(made[-1][0], now) in steps
    return (counts.pop(), rounds) if as_usual else None


def _steps_on(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
