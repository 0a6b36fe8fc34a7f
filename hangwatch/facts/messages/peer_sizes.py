"""A receive and the send that it was paired with, where they are of different sizes.

Sends from one rank to another are received in the order in which they were made. Where both ranks' records are whole,
pairs are counted from the first call; else within steps, where every recorded step before the last one had as many
sends as receives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hangwatch.facts.case import Case, once
from hangwatch.model import Collective
from hangwatch.ranks.tensors import elements

Pair = tuple[Collective, Collective]  # a send, and the receive that takes it
FEWEST_BEFORE, ASKED_BEFORE = 2, 8  # earlier calls that make a habit, and how many of the last ones are asked


@dataclass(frozen=True)
class UnlikePair:
    """The last receive of `receiver` from `sender` is of another size than the send that came.

    `odd` is the one that had brought another size to all its recent calls of that kind; None for both, or neither.
    """

    sender: int
    receiver: int
    send: Collective
    receive: Collective
    odd: int | None


@once
def unlike_pair(case: Case) -> UnlikePair | None:
    """The first such pair, in the order in which receives were made."""
    found = (_of(case, rank, call) for rank in case.ranks for call in _last_receives(case, rank))
    pairs = [pair for pair in found if pair is not None]
    return min(pairs, key=lambda pair: (pair.receive.at or 0.0, pair.receiver), default=None)


def _made(case: Case, rank: int, kind: str, peer: int) -> list[Collective]:
    """The recorded sends to, or receives from, `peer`, in order."""
    calls = case.ranks[rank].evidence.board_calls
    return [call for call in calls if call.op.endswith(kind) and call.peer == peer]


def _last_receives(case: Case, rank: int) -> Iterator[Collective]:
    """The newest receive from each peer."""
    newest = {call.peer: call for call in case.ranks[rank].evidence.board_calls if call.op.endswith("recv")}
    yield from (call for peer, call in newest.items() if peer in case.ranks and peer != rank)


def _of(case: Case, receiver: int, receive: Collective) -> UnlikePair | None:
    sender = receive.peer if receive.peer is not None else receiver
    same = (receive.group, receive.tag)
    sends = [call for call in _made(case, sender, "send", receiver) if (call.group, call.tag) == same]
    receives = [call for call in _made(case, receiver, "recv", sender) if (call.group, call.tag) == same]
    whole = case.ledger.to_peers(sender) is not None and case.ledger.to_peers(receiver) is not None
    pairs = list(zip(sends, receives, strict=False)) if whole else _within_steps(sends, receives)
    if not pairs or pairs[-1][1] is not receive:
        return None
    *before, (send, _) = pairs
    sizes = elements(send.sizes), elements(receive.sizes)
    agreed = all(elements(one.sizes) == elements(other.sizes) for one, other in before)
    if None in sizes or sizes[0] == sizes[1] or not agreed:
        return None
    odd = [sender] * _never(sizes[0], [one for one, _ in before]) + [receiver] * _never(
        sizes[1], [other for _, other in before]
    )
    return UnlikePair(sender, receiver, send, receive, odd[0] if len(odd) == 1 else None)


def _never(size: int | None, before: list[Collective]) -> bool:
    recent = before[-ASKED_BEFORE:]
    return len(recent) >= FEWEST_BEFORE and all(elements(call.sizes) != size for call in recent)


def _within_steps(sends: list[Collective], receives: list[Collective]) -> list[Pair]:
    """The pairs of the steps that both records hold as a whole; empty where an earlier step does not come out even."""
    mine, theirs = _by_step(sends), _by_step(receives)
    shared = sorted(mine.keys() & theirs.keys())[1:]  # the rings may have lost the beginning of the oldest
    if any(len(mine[step]) != len(theirs[step]) for step in shared[:-1]):
        return []
    return [pair for step in shared for pair in zip(mine[step], theirs[step], strict=False)]


def _by_step(calls: list[Collective]) -> dict[int, list[Collective]]:
    found: dict[int, list[Collective]] = {}
    for call in calls:
        if call.step is not None:
            found.setdefault(call.step, []).append(call)
    return found
