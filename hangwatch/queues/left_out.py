"""A call that a rank left out of the order which it shares with others over all groups, and went on as they did."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch import words

from .all_groups import AllGroups
from .model import Call, Communicator
from .names import at, named, ranks
from .readings import Kind

_BEHIND = 2  # calls behind one that was left out that are as the others': where it came later, it would be among them


@dataclass(frozen=True)
class LeftOut:
    """`rank` left out `call`, the first of `times` calls in a row, as `said` in a sentence of evidence."""

    rank: int
    call: Call
    times: int
    said: str


def left_out(
    orders: AllGroups, group: Communicator, rank: int, others: tuple[int, ...], until: int | None = None
) -> LeftOut | None:
    """The call of `group`, up to that number, that `rank` left out, where it made those behind it as `others` did.

    Then it does not come later. All later calls of that group are mispaired, and in the end its last one is missing.
    """
    found = orders.parting(rank, others) if others else None
    if (
        found is None
        or found.reading.kind is not Kind.SKIPPED
        or found.reading.agreeing < _behind(orders, rank, others)
    ):
        return None
    steps = (step for step in found.changed() if step.group is group and (until is None or step.number <= until))
    missing = next(steps, None)
    call = orders.call(missing, others) if missing is not None else None
    if missing is None or call is None:
        return None
    said = (
        f"over all of its groups {ranks([rank])} left out {named(call, missing.number, group)}{at(call)}: behind it,"
        f" {words.plural(found.reading.agreeing, 'call')} {words.verb(found.reading.agreeing, 'agrees', 'agree')} again"
        f" with those of {ranks(others)}"
    )
    return LeftOut(rank, call, found.reading.count, said)


def _behind(orders: AllGroups, rank: int, others: tuple[int, ...]) -> int:
    """How many calls behind it have to be as the others': one, where its host has come to where theirs are."""
    return 1 if any(orders.at_one_place(rank, other) for other in others) else _BEHIND
