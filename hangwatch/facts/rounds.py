"""Sends and receives between two ranks, round by round: which side of an unserved one has left its habit.

A round lies between two collectives of a group that both ranks are members of; where they have issued none, it is a
step. Rounds are alike where the same line issued the collective before them. A pair of ranks that exchanged equally
many messages in every such round on record has a habit. Where one waits for a message in vain, the counts of the
present round show whether its peer sent fewer than usual or it expected more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hangwatch.facts.call_site import Site, site
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective
from hangwatch.proof.waits import Blocked, serves
from hangwatch.ranks.ledger import is_numbered, is_point_to_point

HABITUAL_ROUNDS = 2  # earlier rounds that make a habit


@dataclass(frozen=True)
class LeftHabit:
    """`rank` alone made `made` of its calls with `peer` in the present round, and `usual` in all rounds before."""

    rank: int
    peer: int
    made: int
    usual: int
    rounds: int  # earlier ones that both have on record
    call: Collective  # the extra call, or the last one of the kind that it left out

    @property
    def too_many(self) -> bool:
        return self.made > self.usual


@dataclass
class _Round:
    opened: Site | None  # where the collective before it was called
    calls: list[Collective] = field(default_factory=list)

    def serving(self, op: str, peer: int, call: Collective) -> int:
        """How many of its calls are an `op` with `peer`, in the group and with the tag of `call`."""
        return sum(serves(each, op, peer, call) for each in self.calls)


Rounds = dict[int, _Round]


@once
def left_habit(case: Case) -> LeftHabit | None:
    """The one rank by which the unserved sends and receives of a deadlock came about; None where that is not clear."""
    found = [each for each in _all(case) if each is not None]
    ranks = {each.rank for each in found}
    return found[0] if len(ranks) == 1 else None


def _all(case: Case) -> Iterator[LeftHabit | None]:
    for rank in case.deadlocked:
        entry = case.blocked.get(rank)
        call = entry.call if entry is not None and entry.to_a_peer else None
        if entry is not None and call is not None and call.peer in case.blocked:
            yield _of(case, entry, call, call.peer)


def _of(case: Case, entry: Blocked, call: Collective, peer: int) -> LeftHabit | None:
    markers = _markers(case, entry.rank, peer)
    other = "recv" if "send" in call.op else "send"
    mine, theirs = _rounds(case, entry.rank, markers), _rounds(case, peer, markers)
    present = max(mine, default=0)
    before = [n for n in sorted(mine.keys() & theirs.keys()) if n < present and mine[n].opened == mine[present].opened]
    made = {n: mine[n].serving(call.op, peer, call) for n in (*before, present) if n in mine}
    served = {n: theirs[n].serving(other, entry.rank, call) for n in (*before, present) if n in theirs}
    usual = {count for side in (made, served) for n, count in side.items() if n != present}
    if len(before) < HABITUAL_ROUNDS or len(usual) != 1 or present not in served:
        return None
    count = usual.pop()
    if made[present] > count == served[present]:
        return LeftHabit(entry.rank, peer, made[present], count, len(before), call)
    if made[present] <= count > served[present] and present < max(theirs):
        last = [each for each in theirs[before[-1]].calls if serves(each, other, entry.rank, call)][-1]
        return LeftHabit(peer, entry.rank, served[present], count, len(before), last)
    return None


def _markers(case: Case, rank: int, peer: int) -> str:
    """The name of the group of both ranks whose collectives divide the rounds; "" where there is none on record."""
    names: Counter[str] = Counter()
    for group in case.ledger.groups_of(rank):
        if peer in group.heads:
            names[group.name] = sum(each.group == group.name for each in _numbered(case, rank))
    return next((name for name, times in names.most_common(1) if times), "")


def _numbered(case: Case, rank: int) -> Iterator[Collective]:
    return (call for call in _record(case, rank) if is_numbered(call))


def _record(case: Case, rank: int) -> tuple[Collective, ...]:
    """The calls of a rank in the order of their issue, those with its peers among them."""
    entry = case.ranks[rank].evidence
    ring = entry.reading.calls if entry.reading is not None else ()
    return ring if any(is_point_to_point(call) for call in ring) else entry.collectives.recent


def _rounds(case: Case, rank: int, markers: str) -> Rounds:
    """The sends and receives of a rank by round; the oldest one only where the record has lost none of them.

    A round in which the rank now waits for a collective is over; the next one has then begun, and is empty.
    """
    found: Rounds = {}
    number = 0
    for call in (*_record(case, rank), *_unrecorded(case, rank)):
        if is_point_to_point(call):
            found.setdefault(number if markers else _step(call), _Round(None)).calls.append(call)
        elif is_numbered(call) and call.group == markers:
            number = call.seq
            found.setdefault(number - 1, _Round(None))
            found.setdefault(number, _Round(site(call)))
    if found and case.ledger.to_peers(rank) is None:
        del found[min(found)]
    return found


def _unrecorded(case: Case, rank: int) -> Iterable[Collective]:
    """The calls that the rank is in, where the record does not have them yet."""
    known = {(call.group, call.seq, call.op, call.peer) for call in _record(case, rank)}
    return (e for e in case.ledger.open_calls(rank) if (e.group, e.seq, e.op, e.peer) not in known)


def _step(call: Collective) -> int:
    return call.step if call.step is not None else 0
