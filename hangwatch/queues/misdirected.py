"""Calls that went elsewhere than every earlier call of their line: to another peer, or in another group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from hangwatch import words
from hangwatch.model import Certainty

from .finding import Finding, collective, victims, wait_edges
from .follow import Chain
from .model import Call, Queues
from .names import at, named, ranks, say, word
from .pairs import stuck_pairs
from .readings import FARTHEST, due
from .stuck import Kind, Stuck

_OTHERS_ASKED = 2  # other ranks that are asked whether they call from that line in that group, too
_TO_ONE_PLACE = 2  # earlier calls of one line, all to one place, that make another place odd


def misdirected(queues: Queues, chain: Chain) -> Finding | None:
    """The finding on a call with another peer or group than its line had before, where those wait for this rank."""
    stuck = (*chain.roots, *chain.path)
    return _wrong_peer(queues, chain, stuck) or _wrong_group(queues, chain, stuck)


def _wrong_peer(queues: Queues, chain: Chain, stuck: tuple[Stuck, ...]) -> Finding | None:
    """A send or receive with another peer than its line had every time before, for which the usual peer waits.

    Where the line takes its peers in turn, a call that completed may have taken another one's message.
    """
    for one in stuck:
        if one.kind is not Kind.PEER:
            continue
        strayed = _first_strayed(queues, one)
        wanting = _wanting(queues, strayed.usual, one) if strayed is not None else None
        if strayed is not None and wanting is not None:
            return _strayed(one, strayed, wanting, chain)
    return None


class _Strayed(NamedTuple):
    """A call with another peer than `usual`, which all earlier calls of its line had, or which came next in turn."""

    call: Call
    peer: int
    usual: int
    in_turn: bool
    went_on: bool  # behind it the line made further calls


def _first_strayed(queues: Queues, one: Stuck) -> _Strayed | None:
    """The first of the last calls of its line, up to itself, with another peer than was due; None without a rule."""
    (rank,) = one.waiting
    lane, call, members = one.group.peers[rank], one.calls[rank], one.group.members
    until = (queues.call(lane, place) for place in range(len(lane)) if lane.order[place] <= one.order[rank])
    made = [each for each in until if each.op == call.op and each.frames == call.frames]
    peers = [each.target if call.op == "send" else each.source for each in made]
    if any(peer is None or peer >= len(members) for peer in peers):
        return None
    known = [members[peer] for peer in peers if peer is not None]
    for place in range(max(_TO_ONE_PLACE, len(made) - FARTHEST), len(made)):
        in_turn = len(set(known[:place])) > 1
        next_one = due(known[:place]) if in_turn else (known[0], place)
        if next_one is not None and next_one[0] != known[place]:
            return _Strayed(made[place], known[place], next_one[0], in_turn, place < len(made) - 1)
    return None


def _wanting(queues: Queues, usual: int, one: Stuck) -> Stuck | None:
    """The call in which the usual peer waits for this rank, in the same group."""
    (rank,) = one.waiting
    return next(
        (
            each
            for each in stuck_pairs(queues)
            if each.kind in (Kind.PEER, Kind.HELD, Kind.QUEUED)
            and each.counted
            and each.group is one.group
            and usual in each.waiting
            and set(each.peers) == {usual, rank}
            and each.calls[usual].op != one.calls[rank].op
        ),
        None,
    )


def _strayed(one: Stuck, strayed: _Strayed, wanting: Stuck, chain: Chain) -> Finding:
    (rank,), usual = one.waiting, strayed.usual
    call, waits = strayed.call, wanting.calls[usual]
    verb, to, lacking = ("sends", "to", "receive") if call.op == "send" else ("receives", "from", "send")
    told = f"were {to} rank {usual}"
    if strayed.in_turn:
        told = f"took their peers in turn, and rank {usual} was next"
    unmet = "the last of them" if strayed.went_on else "it"
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {rank} {verb} {to} rank {strayed.peer} in {one.group.title}{at(call)}, where its earlier calls {told};"
        f" rank {one.awaited[0]} has no {lacking} for {unmet}, and rank {usual} waits in a {word(waits)}{at(waits)} for"
        f" rank {rank}.",
        culprits=((rank, call.where),),
        victims=victims((*chain.path, wanting), (rank,)),
        evidence=(
            f"all earlier calls in the record of rank {rank} from there{at(call)} {told}",
            f"open on rank {usual}: a {word(waits)} {'to' if waits.op == 'send' else 'from'} rank {rank}{at(waits)}",
        ),
        waits=(*wait_edges(wanting, (rank,)), *wait_edges(one)),
        fix=f"look at how rank {rank} computes its peer at this point",
    )


# ------------------------------------------------------------------------------------------ the wrong group


def _wrong_group(queues: Queues, chain: Chain, stuck: tuple[Stuck, ...]) -> Finding | None:
    """A rank that others await stands in a call of the same line, in a group in which that line never was before."""
    for one in stuck:
        if one.kind is not Kind.ABSENT or one.call is None or not one.call.frames:
            continue
        for other in stuck:
            for rank in one.awaited:
                call = other.calls.get(rank)
                if other.group is not one.group and call is not None and _same_line(call, one.call):
                    used = _used(queues, rank, call, other)
                    if set(used) == {one.group.name} and used.total() >= _TO_ONE_PLACE:
                        stayed = _stayed(queues, one, other, rank, chain)
                        new_to_more = stayed is None and _is_new_to_more(queues, stuck, rank, call)
                        return None if new_to_more else stayed or _elsewhere(one, other, rank, chain)
    return None


def _is_new_to_more(queues: Queues, stuck: tuple[Stuck, ...], rank: int, call: Call) -> bool:
    """Another rank stands in a group that is new at that line, too: the program has come to another phase."""
    return any(
        one.group.name not in _used(queues, other, there, one)
        for one in stuck
        for other, there in one.calls.items()
        if other != rank and _same_line(there, call) and not one.peers
    )


def _stayed(queues: Queues, one: Stuck, other: Stuck, rank: int, chain: Chain) -> Finding | None:
    """Most of the ranks at that line have gone over to a group that is new, and few of its members have not."""
    moved = sorted(
        each
        for each, call in other.calls.items()
        if one.call is not None
        and _same_line(call, one.call)
        and _used(queues, each, call, other).keys() <= {one.group.name}
    )
    few, is_new = sorted(one.waiting), other.number == 1
    if not is_new or len(moved) <= len(few) or not set(few) <= set(other.group.members):
        return None
    where, they = at(one.call), words.verb(len(few), "it has", "they have")
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"{ranks(few, capital=True)} called {collective(one)}{where}, where {ranks(moved)} called"
        f" {collective(other)}: {they} kept a group that the others have left for one of which"
        f" {words.verb(len(few), 'it is a member', 'they are members')} too.",
        culprits=tuple((each, one.calls[each].where) for each in few),
        victims=victims(chain.path, few),
        evidence=(
            f"{ranks(moved)} called {collective(other)}{where}, which waits for {ranks(few)}",
            f"all earlier calls in the record of rank {rank} from there were in {one.group.title}",
        ),
        waits=(*wait_edges(one), *wait_edges(other)),
        fix=f"look at which group {say(few, 'takes', 'take')} at this line: it is an old one",
    )


def in_another_group(queues: Queues, chain: Chain) -> Finding | None:
    """Few ranks made a call of a line in a group in which that line never was before, among other calls.

    No rank need wait for them in the usual group: hosts run ahead, and their next call stands in its place there.
    """
    one = chain.roots[0]
    for who, call in _few_and_lines(one) if not one.peers else ():
        stray = _stray(queues, who[0], call)
        if stray is None or not stray.concerns(one) or any(_stray(queues, each, call) != stray for each in who[1:]):
            continue
        others = [rank for rank in one.calls if rank not in who][:_OTHERS_ASKED]
        if not any(stray.group in _places(queues, rank, call) for rank in others):
            return _in_place_of_another(queues, chain, one, stray, who)
    return None


def _few_and_lines(one: Stuck) -> Iterator[tuple[list[int], Call]]:
    """No more than half of the ranks, with each call that they, or the others, make there."""
    sides: dict[tuple[object, ...], list[int]] = {}
    for rank, call in one.calls.items():
        sides.setdefault((call.op, call.frames), []).append(rank)
    for there in sides.values():
        others = [rank for rank in one.calls if rank not in there]
        few = min(there, others, key=len)
        if 0 < len(few) <= len(one.calls) / 2:
            yield sorted(few), one.calls[there[0]]


class _Stray(NamedTuple):
    """The one call of a line that was in another group than all others: its group and number, and the usual group."""

    group: str
    number: int
    usual: str

    def concerns(self, one: Stuck) -> bool:
        """Whether it is paired there with other calls, or its place in the usual group is taken there."""
        return (self.group, self.number) == (one.group.name, one.number) or self.usual == one.group.name


def _stray(queues: Queues, rank: int, call: Call) -> _Stray | None:
    """The one call of that line in another group, behind enough of them in the usual one."""
    places = _places(queues, rank, call)
    lone = [name for name, each in places.items() if len(each) == 1]
    usual = [name for name, each in places.items() if len(each) >= _TO_ONE_PLACE]
    if len(lone) != 1 or len(usual) != 1:
        return None
    ((order, number),) = places[lone[0]]
    before = sum(earlier < order for earlier, _ in places[usual[0]])
    return _Stray(lone[0], number, usual[0]) if before >= _TO_ONE_PLACE else None


def _places(queues: Queues, rank: int, call: Call) -> dict[str, list[tuple[int, int]]]:
    """By group, when in its order and under which number `rank` has called from that line."""
    found: dict[str, list[tuple[int, int]]] = {}
    for group in queues.communicators if call.frames else ():
        lane = group.lanes.get(rank)
        for place in range(len(lane) if lane is not None else 0):
            if lane is not None and _same_line(queues.call(lane, place), call):
                found.setdefault(group.name, []).append((lane.order[place], lane.numbers[place]))
    return found


def _in_place_of_another(queues: Queues, chain: Chain, one: Stuck, stray: _Stray, who: list[int]) -> Finding:
    own = {each.name: each for each in queues.communicators if who[0] in each.lanes}
    group, usual = own[stray.group], own[stray.usual]
    lane = group.lanes[who[0]]
    call = queues.call(lane, lane.places(stray.number).start)
    its = words.verb(len(who), "its", "their")
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"{ranks(who, capital=True)} called {named(call, stray.number, group)}{at(call)}, where {its} earlier calls"
        f" were in {usual.title}: since then {its} calls there are paired with others.",
        culprits=tuple((rank, call.where) for rank in who),
        victims=victims((*chain.path, one), who),
        evidence=(f"all other calls in the record of {ranks(who)} from there{at(call)} were in {usual.title}",),
        waits=wait_edges(one, who),
        fix=f"look at which group {say(who, 'takes', 'take')} at this line",
    )


def _same_line(one: Call, other: Call) -> bool:
    return one.op == other.op and one.frames == other.frames


def _used(queues: Queues, rank: int, call: Call, but: Stuck) -> Counter[str]:
    """How often `rank` called from that line in each group, but for the call that is stuck."""
    stuck = (but.group.name, but.number)
    places = _places(queues, rank, call).items()
    return Counter(name for name, each in places for _, number in each if (name, number) != stuck)


def _elsewhere(one: Stuck, other: Stuck, rank: int, chain: Chain) -> Finding:
    call, waits = other.calls[rank], say(one.waiting, "waits", "wait")
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"Rank {rank} called {named(call, other.number, other.group)}{at(call)}, where its earlier calls were in"
        f" {one.group.title}: {waits} for it in {collective(one)}{at(one.call)}.",
        culprits=((rank, call.where),),
        victims=victims(chain.path, (rank,)),
        evidence=(
            f"all earlier calls in the record of rank {rank} from there{at(call)} were in {one.group.title}",
            f"rank {rank} has not enqueued {collective(one)}, and {waits} for it there",
        ),
        waits=(*wait_edges(one), *wait_edges(other, (rank,) if other.kind is Kind.MISMATCH else None)),
        fix=f"look at which group rank {rank} takes at this line",
    )
