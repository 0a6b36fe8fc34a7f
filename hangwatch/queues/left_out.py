"""A call that a rank left out of the order which it shares with others over all groups, and went on as they did."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hangwatch import words

from .all_groups import AllGroups, Parting
from .matching import shape
from .model import Call, Communicator
from .names import at, named, ranks
from .readings import AS_OTHERS, Kind

_LIKE_ROUNDS = 2  # earlier ones that had equally many such calls


@dataclass(frozen=True)
class LeftOut:
    """`rank` left out `call`, the first of `times` calls in a row, as `said` in a sentence of evidence.

    Unless it is `sure`, it may have come too early to the call in which it waits: `at_one_path` if that one is from
    the same lines, for another group.
    """

    rank: int
    call: Call
    times: int
    said: str
    sure: bool = True
    at_one_path: bool = False


def left_out(
    orders: AllGroups, group: Communicator, rank: int, others: tuple[int, ...], until: int | None = None
) -> LeftOut | None:
    """The call of `group`, up to that number, that `rank` left out, where it made those behind it as `others` did.

    Then it does not come later. All later calls of that group are mispaired, and in the end its last one is missing.
    """
    found = orders.parting(rank, others) if others else None
    if found is None or found.reading.kind is not Kind.SKIPPED:
        return None
    if found.reading.agreeing < _behind(orders, rank, others):
        return _in_a_short_round(orders, found, rank, group, others)
    changed = (each for each in found.changed() if each.group is group and (until is None or each.number <= until))
    missing = next(changed, None)
    call = orders.call(missing, others) if missing is not None else None
    if missing is None or call is None:
        return None
    what, agreeing = f"{named(call, missing.number, group)}{at(call)}", found.reading.agreeing
    own = orders.call(found.mine[found.place], [rank])
    if agreeing < AS_OTHERS and own is not None and own.frames == call.frames != ():
        # Two calls in another order look the same.
        said = (
            f"over all of its groups {ranks([rank])} called {shape(own)}{at(own)} where {ranks(others)} called {what}"
        )
        return LeftOut(rank, call, found.reading.count, said, sure=False, at_one_path=True)
    said = (
        f"over all of its groups {ranks([rank])} left out {what}: behind it, {words.plural(agreeing, 'call')}"
        f" {words.verb(agreeing, 'agrees', 'agree')} again with those of {ranks(others)}"
    )
    return LeftOut(rank, call, found.reading.count, said)


def _in_a_short_round(
    orders: AllGroups, found: Parting, rank: int, group: Communicator, others: tuple[int, ...]
) -> LeftOut | None:
    """The same where it came to a call that follows every few turns, with fewer such calls before it than ever.

    A turn was left out, or what follows every few turns came a turn early: the records of both are alike.
    """
    own, due = found.mine[found.place], found.theirs[found.place]
    tokens, call = [each.token for each in found.mine[: found.place]], orders.call(due, others)
    if due.group is not group or call is None or (tokens[-1] != due.token and found.reading.count < AS_OTHERS):
        return None  # of two calls in turn either order is possible
    ends = [place for place, token in enumerate(tokens) if token == own.token]
    rounds = {tokens[one:other].count(due.token) for one, other in pairwise(ends)}
    made, usual = tokens[ends[-1] :].count(due.token) if ends else 0, max(rounds, default=0)
    if len(ends) <= _LIKE_ROUNDS or len(rounds) != 1 or made >= usual:
        return None
    said = (
        f"{ranks([rank])} made {words.plural(usual, 'call')} like {named(call, due.number, group)}{at(call)}"
        f" before each of the {len(ends) - 1} earlier calls like the one in which it waits, and {made} before that one"
    )
    return LeftOut(rank, call, usual - made, said, sure=False)


def _behind(orders: AllGroups, rank: int, others: tuple[int, ...]) -> int:
    """How many calls behind it have to be as the others': one, where its host has come to where theirs are."""
    return 1 if any(orders.at_one_place(rank, other) for other in others) else AS_OTHERS
