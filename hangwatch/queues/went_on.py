"""The sentence on the one rank of a circle that went on to a call without, or ahead of, what others wait for."""

from __future__ import annotations

from bisect import bisect_left

from .circle_waits import Circle
from .edges import Edge
from .finding import collective
from .names import at, named, say, word
from .stuck import Kind, Stuck


def went_on(one: Circle, stray: list[int]) -> tuple[str, str]:
    """The sentence and the fix where the one rank that left its order went on; both "" where it did not."""
    if len(stray) != 1:
        return "", ""
    for edge, following in zip(one.edges, (*one.edges[1:], one.edges[0]), strict=True):
        if list(edge.awaited) != stray:
            continue
        if edge.one.kind is Kind.PEER and stray[0] in edge.one.order:
            return _ahead_of_message(one, edge, following.one, stray[0])
        if edge.one.kind is Kind.PEER:
            return _without_message(edge, following.one, stray[0])
        if edge.one.kind is Kind.ABSENT:
            lacking = f"{collective(edge.one)}{at(edge.one.call)}"
            said = f"{lacking}, for which {say(edge.waiting, 'waits', 'wait')}"
            return f"{_gone(following.one, stray[0])} without {said}: neither call can complete.", ""
    return "", ""


def _ahead_of_message(one: Circle, edge: Edge, then: Stuck, rank: int) -> tuple[str, str]:
    """Its device does not come to a message that stands behind the call in which it waits."""
    (peer,) = edge.waiting
    lane, waits = edge.one.group.peers[rank], edge.one.calls[peer]
    behind = one.queues.call(lane, bisect_left(lane.order, edge.one.order[rank]))
    own, back = f"{word(behind)} {'to' if behind.op == 'send' else 'from'} rank {peer}", word(waits)
    said = (
        f"Rank {rank} called {_own(then, rank)} before its {own}{at(behind)}, for which rank {peer} waits in a"
        f" {back}{at(waits)}: neither call can complete."
    )
    fix = (
        "let one of the two receive first, as in the rounds before, or give all sends and receives of a round to"
        " batch_isend_irecv"
    )
    return said, fix


def _without_message(edge: Edge, then: Stuck, rank: int) -> tuple[str, str]:
    (peer,) = edge.waiting
    waits = edge.one.calls[peer]
    lacking = f"{'receive from' if waits.op == 'send' else 'send to'} rank {peer}"
    said = f"without the {lacking}, which waits for it in a {word(waits)}{at(waits)}"
    fix = f"give rank {rank} the {lacking} here, as in the rounds before, or leave it out on all sides"
    return f"{_gone(then, rank)} {said}: neither call can complete.", fix


def _gone(then: Stuck, rank: int) -> str:
    return f"Rank {rank} went on to {_own(then, rank)}"


def _own(one: Stuck, rank: int) -> str:
    """The call by what this rank made of it."""
    call = one.calls.get(rank)
    return f"{collective(one) if call is None else named(call, one.number, one.group)}{at(call)}"
