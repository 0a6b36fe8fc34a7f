"""Ranks that wait for each other over several groups or peers, and sends that went to another peer than before."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hangwatch import words
from hangwatch.model import Certainty

from .departures import departed
from .finding import Finding, at, collective, named, ranks, victims, wait_edges
from .follow import Chain, before
from .history import Histories
from .model import Call, Queues
from .pairs import stuck_pairs
from .stuck import Kind, Stuck

_HABIT = 2  # earlier calls of one line, all with one peer, that make another peer odd


@dataclass(frozen=True, slots=True)
class _Edge:
    """One wait of a circle: which ranks wait in a call, and for which."""

    one: Stuck
    waiting: tuple[int, ...]
    awaited: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{ranks(self.waiting)} {words.verb(len(self.waiting), 'waits', 'wait')} for {ranks(self.awaited)} in"
            f" {collective(self.one)}{at(self.one.call)}"
        )


def circle(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    """Ranks wait for each other over several groups or peers; the one that left its own order of calls is to blame."""
    if (parted := departed(queues, chain, histories)) is not None:
        return parted
    pairs = any(each.peers for each in chain.roots)
    sure = not any(each.kind is Kind.QUEUED and each.peers for each in chain.roots)
    concerned = {rank for each in chain.roots for rank in each.group.members} & queues.ranks
    edges = _edges(chain)
    inside = _inside(edges)
    stray = histories.strays(concerned)
    blamed = stray if 2 * len(stray) <= len(concerned) and stray else inside
    without, fix = _without(edges, stray)
    where = {rank: each.calls[rank].where for each in chain.roots for rank in each.calls}
    return Finding(
        "point-to-point-deadlock" if pairs else "group-order-cycle",
        Certainty.LIKELY if sure else Certainty.UNDETERMINED,
        without
        or f"{ranks(inside, capital=True)} wait for each other in a circle: {'; '.join(map(str, edges[:3]))}"
        f"{'; ...' if len(edges) > 3 else ''}.",
        culprits=tuple((rank, where.get(rank)) for rank in blamed),
        victims=victims(chain.path, blamed),
        evidence=(*map(str, edges[:3]), *_astray(stray, blamed)),
        waits=tuple(edge for each in chain.roots for edge in wait_edges(each)),
        fix=fix,
        passing=not sure,
    )


def _edges(chain: Chain) -> list[_Edge]:
    """The waits around the circle. What all have enqueued waits for the ranks that enqueued the next one before it."""
    found = []
    for one, following in zip(chain.roots, (*chain.roots[1:], chain.roots[0]), strict=True):
        earlier = tuple(rank for rank in one.waiting if before(following, one, rank))
        awaited = one.awaited or earlier or following.waiting
        waiting = tuple(rank for rank in one.waiting if rank not in awaited) or one.waiting
        found.append(_Edge(one, waiting, awaited))
    return found


def _inside(edges: list[_Edge]) -> list[int]:
    """Ranks that are awaited in one call of the circle and wait in another."""
    waiting = {rank for edge in edges for rank in edge.one.waiting}
    awaited = {rank for edge in edges for rank in edge.awaited}
    return sorted(waiting & awaited or waiting)


def _without(edges: list[_Edge], stray: list[int]) -> tuple[str, str]:
    """The sentence and the fix where one rank left its order and went on without a peer's counterpart; else nothing."""
    for edge, following in zip(edges, (*edges[1:], edges[0]), strict=True):
        if edge.one.kind is Kind.PEER and list(edge.awaited) == stray:
            (rank,), (peer,) = edge.waiting, edge.awaited
            lacking, waits = _counterpart(edge.one.calls[rank], rank), edge.one.calls[rank]
            summary = (
                f"Rank {peer} went on to {_own(following.one, peer)} without the {lacking}, which waits for it in a"
                f" {_word(waits)}{at(waits)}: neither call can complete."
            )
            return summary, f"give rank {peer} the {lacking} here, as in the rounds before, or leave out both sides"
    return "", ""


def _own(one: Stuck, rank: int) -> str:
    """The call by what this rank made of it."""
    call = one.calls.get(rank)
    return f"{collective(one) if call is None else named(call, one.number, one.group)}{at(call)}"


def _counterpart(call: Call, rank: int) -> str:
    return f"receive from rank {rank}" if call.op == "send" else f"send to rank {rank}"


def _word(call: Call) -> str:
    return "send" if call.op == "send" else "receive"


def _astray(stray: list[int], blamed: list[int]) -> tuple[str, ...]:
    if stray != blamed:
        return ()
    return (f"{ranks(stray)} left the order of calls that {words.verb(len(stray), 'it', 'they')} kept before",)


# ------------------------------------------------------------------------------------------ the wrong peer


def misdirected(queues: Queues, chain: Chain) -> Finding | None:
    """A send or receive with another peer than its line had every time before, for which the usual peer waits."""
    for one in (*chain.roots, *chain.path):
        if one.kind is not Kind.PEER:
            continue
        usual = _usual_peer(queues, one)
        wanting = _wanting(queues, usual, one) if usual not in one.awaited else None
        if usual is not None and wanting is not None:
            return _strayed(one, usual, wanting, chain)
    return None


def _usual_peer(queues: Queues, one: Stuck) -> int | None:
    """The one peer of all earlier calls from the same line; None where there were several, or too few calls."""
    (rank,) = one.waiting
    lane, call = one.group.peers[rank], one.calls[rank]
    known = (
        queues.call(lane, place)
        for place in range(len(lane))
        if lane.order[place] < one.order[rank] and lane.numbers[place] != one.number
    )
    peers = Counter(
        each.target if call.op == "send" else each.source
        for each in known
        if each.op == call.op and each.frames == call.frames
    )
    if len(peers) != 1 or peers.total() < _HABIT:
        return None
    (place,) = peers
    return one.group.members[place] if place is not None and place < len(one.group.members) else None


def _wanting(queues: Queues, usual: int | None, one: Stuck) -> Stuck | None:
    """The call in which the usual peer waits for this rank, in the same group."""
    (rank,) = one.waiting
    return next(
        (
            each
            for each in stuck_pairs(queues)
            if each.kind in (Kind.PEER, Kind.HELD, Kind.QUEUED)
            and each.group is one.group
            and usual in each.waiting
            and set(each.peers) == {usual, rank}
            and each.calls[usual].op != one.calls[rank].op
        ),
        None,
    )


def _strayed(one: Stuck, usual: int, wanting: Stuck, chain: Chain) -> Finding:
    (rank,), (peer,) = one.waiting, one.awaited
    call, waits = one.calls[rank], wanting.calls[usual]
    verb, to, word = ("sends", "to", "receive") if call.op == "send" else ("receives", "from", "send")
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {rank} {verb} {to} rank {peer} in {one.group.title}{at(call)}, where its earlier calls were {to} rank"
        f" {usual}; rank {peer} has no {word} for it, and rank {usual} waits in a"
        f" {_word(waits)}{at(waits)} for rank {rank}.",
        culprits=((rank, call.where),),
        victims=victims((*chain.path, wanting), (rank,)),
        evidence=(
            f"all earlier calls in the record of rank {rank} from there{at(call)} were {to} rank {usual}",
            f"open on rank {usual}: a {_word(waits)} {'to' if waits.op == 'send' else 'from'} rank {rank}{at(waits)}",
        ),
        waits=(*wait_edges(wanting), *wait_edges(one)),
        fix=f"look at how rank {rank} computes its peer at this point",
    )
