"""The order of calls that all ranks kept in a group, and the ranks that left it where their calls were mispaired.

Programs repeat themselves: what came before a call says which call follows, where it did so every time. It needs no
count of steps, so it holds for loops of the user's own, on ranks that have ended too. A side whose call is the one that
always followed has kept the order; the other one has left out what lies between, or calls in another order now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.call_sites import HABIT
from hangwatch.facts.case import Case, once
from hangwatch.facts.extra_calls import groups
from hangwatch.facts.mismatches import alike, both_ways, common_call, mispaired, shape
from hangwatch.model import Collective
from hangwatch.ranks.ledger import CALLS_TOLD, Group
from hangwatch.stacks.frames import user_frame

OUTWEIGHS_MOST = 8  # rounds in which all ranks kept an order; after fewer, most ranks may rather have a new one
LONGEST_ORDER = 32  # calls before a place that are looked at, to tell it from others

History = Sequence[Collective]


@dataclass(frozen=True)
class OutOfOrder:
    """`ranks` made `reached` as number `seq`, where after the same calls `left_out` had always come first."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    group: Group
    seq: int
    reached: Collective
    left_out: tuple[Collective, ...]
    times: int  # how often the order was kept before, as far as it is on record

    @property
    def elsewhere(self) -> bool:
        """The call that was due comes from another point of the program than the one that was made."""
        return path(self.reached.frames) != path(self.left_out[0].frames)


@once
def out_of_order(case: Case) -> OutOfOrder | None:
    """The fewer ranks, or one of two halves, that left the common order at the first mispaired call."""
    return next((found for found in _left_by(case) if len(found.ranks) <= len(found.others)), None)


@once
def left_by_most(case: Case) -> OutOfOrder | None:
    """The many that left at the first mispaired call the order which they kept before, and which few kept to."""
    most = (found for found in _left_by(case) if len(found.ranks) > len(found.others))
    return next((found for found in most if found.times >= OUTWEIGHS_MOST), None)


def _left_by(case: Case) -> Iterator[OutOfOrder]:
    found = mispaired(case)
    ways = both_ways(found) if found is not None else ()
    if found is None or not ways:
        return
    history = _history(case, found.group, found.seq, [ranks[0] for ranks in ways[0]])
    turns = _turns(history)
    for ranks, others in ways:
        reached, due = found.calls[ranks[0]], found.calls[others[0]]
        left_out = _left_out(history, turns, reached)
        if left_out and all(alike(history[turn], due) for turn in turns):
            yield OutOfOrder(ranks, others, found.group, found.seq, reached, left_out, len(turns))


def _history(case: Case, group: Group, seq: int, ranks: list[int]) -> list[Collective]:
    """The calls right before that number, oldest first, as far back as those of all `ranks` are recorded and alike."""
    found: list[Collective] = []
    for number in range(seq - 1, max(seq - 1 - CALLS_TOLD, 0), -1):
        if (call := common_call(case, group, number, ranks)) is None:
            break
        found.append(call)
    return found[::-1]


def _turns(history: History) -> tuple[int, ...]:
    """The earlier places after the same calls as at the end of `history`, as many of them as say what follows."""
    end, places = len(history), tuple(range(1, len(history)))
    for length in range(1, min(end, LONGEST_ORDER + 1)):
        places = tuple(at for at in places if at >= length and alike(history[at - length], history[end - length]))
        if len(places) < HABIT:
            return ()
        if all(alike(history[places[0]], history[at]) for at in places):
            return places
    return ()


def _left_out(history: History, turns: Sequence[int], reached: Collective) -> tuple[Collective, ...]:
    """What came, in each of the turns alike, before a call like `reached`; nothing where there was no rule."""
    if not turns:
        return ()
    runs = {next((at - turn for at in range(turn, len(history)) if alike(history[at], reached)), 0) for turn in turns}
    length = runs.pop() if len(runs) == 1 else 0
    return tuple(history[turns[-1] : turns[-1] + length])


def order_kept(case: Case, found: OutOfOrder) -> str:
    """What shows the order, and where in it the call belongs that was made instead."""
    first, later = found.left_out[0], len(found.left_out)
    due = (
        next(name for name, _ in groups((first,)))
        if found.elsewhere
        else f"{shape(first)}{words.at(user_frame(first.frames))}"
    )
    return (
        f"after the same calls, {due} followed on every rank each of the {found.times} times on record; as number"
        f" {found.seq} of group {found.group.name}, {case.name(found.ranks)} made the call that then came"
        f" {words.plural(later, 'call')} later"
    )
