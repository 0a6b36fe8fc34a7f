"""Sends and receives at equal intervals of a group's collectives: which rank went past the place of the next one.

A turn of a loop may make many collectives from one line, a broadcast for each parameter. Then no two of them bound a
round (`hangwatch.facts.messages.rounds`), but equally many lie between the messages of each turn and those of the next.
Where more lie between two of them, an evaluation may have come between two epochs: then some are of lines of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangwatch.facts.call_site import Site, comes_before, site
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
    ahead: Site | None  # where the collective behind which these should have come was called

    @property
    def overdue(self) -> bool:
        """It called the collective that follows those messages once more, and did not make them before it."""
        return self.passed is not None and self.followed == {self.passed}

    @property
    def overdue_at_the_end(self) -> bool:
        """It called another one behind their line, after the one ahead of them: so does a last turn that was whole."""
        place = site(self.next)
        if place is None or self.ahead is None or self.passed is None:
            return False
        return comes_before(self.ahead.lines, place.lines) and comes_before(place.lines, self.passed.lines)


def messages(record: Sequence[Collective], op: str, peer: int, like: Collective, markers: str) -> Messages | None:
    """The messages that `op` with `peer` stands for, in a rank's record; None where they keep to no interval.

    Those ahead of the oldest collective that is still recorded are left out: where they were made is not known.
    """
    marks = [call for call in record if is_numbered(call) and call.group == markers]
    sites = {call.seq: site(call) for call in marks}
    number = 0 if not marks or marks[0].seq <= 1 else None
    made: dict[int, list[Collective]] = {}
    for call in record:
        if is_numbered(call) and call.group == markers:
            number = call.seq
        elif number is not None and is_point_to_point(call) and serves(call, op, peer, like):
            made.setdefault(number, []).append(call)
    places = sorted(made)
    turns = _turns(places, sites)
    if not turns:
        return None
    usual, step = len(made[places[0]]), turns[-1][1] - turns[-1][0]
    whole = places[:-1] if len(made[places[-1]]) < usual else places
    if len(whole) <= HABITUAL_INTERVALS or any(len(made[place]) != usual for place in whole):
        return None
    end = whole[-1]
    due = end + step
    done = len(made.get(due, ()))
    followed = frozenset(sites.get(place + 1) for place, _ in turns if place != end)
    return Messages(step, usual, done, len(whole), end, made[end][done], followed, sites.get(due + 1), sites.get(due))


def _turns(places: Sequence[int], sites: Mapping[int, Site | None]) -> list[tuple[int, int]]:
    """Each two successive places that lie as far apart as the last two; none unless another loop lies in the others."""
    spans = list(pairwise(places))
    if not spans:
        return []
    every = spans[-1][1] - spans[-1][0]
    turns = [span for span in spans if span[1] - span[0] == every]
    of_turns = {place for span in turns for place in _sites_in(span, sites)}
    others = [span for span in spans if span[1] - span[0] != every]
    known = all(any(place not in of_turns for place in _sites_in(span, sites)) for span in others)
    return turns if known and len(turns) >= HABITUAL_INTERVALS else []


def _sites_in(span: tuple[int, int], sites: Mapping[int, Site | None]) -> Iterator[Site | None]:
    """Where the collectives between two places of messages were called."""
    start, end = span
    return (sites.get(number) for number in range(start + 1, end + 1))
