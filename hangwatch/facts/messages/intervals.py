"""Sends and receives at equal intervals of a group's collectives: which rank went past the place of the next one.

A turn of a loop may make many collectives from one line, a broadcast for each parameter. Then no two of them bound a
round (`hangwatch.facts.messages.rounds`), but equally many lie between the messages of each turn and those of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangwatch.facts.call_site import Site, site
from hangwatch.model import Collective
from hangwatch.proof.messages import serves
from hangwatch.ranks.ledger import is_numbered, is_point_to_point

HABITUAL_INTERVALS = 2  # equal ones in a row that make a habit


@dataclass(frozen=True)
class Messages:
    """The messages of one kind that a rank made with a peer: `usual` behind a collective, and again `every` later."""

    every: int
    usual: int
    made: int  # of those that should have come last
    turns: int
    last_at: int  # the number of the collective behind which the last ones were made, all of them
    next: Collective  # the one of the last whole turn that comes next
    followed: frozenset[Site | None]  # where the first collective behind those of each turn was called
    passed: Site | None  # the same of the messages that should have come last: None before that place

    @property
    def overdue(self) -> bool:
        """It called the collective that follows those messages once more, and did not make them before it."""
        return self.passed is not None and self.followed == {self.passed}


def messages(record: Sequence[Collective], op: str, peer: int, like: Collective, markers: str) -> Messages | None:
    """The messages that `op` with `peer` stands for, in a rank's record; None where they keep to no interval."""
    number, sites = 0, dict[int, Site | None]()
    made: dict[int, list[Collective]] = {}
    for call in record:
        if is_numbered(call) and call.group == markers:
            number = call.seq
            sites[number] = site(call)
        elif is_point_to_point(call) and serves(call, op, peer, like):
            made.setdefault(number, []).append(call)
    places = sorted(made)
    every = {later - earlier for earlier, later in pairwise(places)}
    if len(every) != 1:
        return None
    usual, step = len(made[places[0]]), every.pop()
    whole = places[:-1] if len(made[places[-1]]) < usual else places
    if len(whole) <= HABITUAL_INTERVALS or any(len(made[place]) != usual for place in whole):
        return None
    end = whole[-1]
    done = len(made.get(end + step, ()))
    followed = frozenset(sites.get(place + 1) for place in whole[:-1])
    return Messages(step, usual, done, len(whole), end, made[end][done], followed, sites.get(end + step + 1))
