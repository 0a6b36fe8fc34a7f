"""Sends and receives between two ranks, round by round: which side of an unserved one has left its habit.

A round lies between two collectives of a group that both ranks are members of; where they have issued none, it is a
step. Rounds are alike where the same line issued the collective before them, for the same kind of data (the length and
the bytes of an object are two). A pair of ranks that exchanged equally many messages in every such round on record has
a habit; so has one that did so once, as other peers did in that round and in the present one. Where one waits for a
message in vain, the counts of the present round show whether its peer sent fewer than usual or it expected more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hangwatch.facts.call_site import site
from hangwatch.facts.case import Case, once
from hangwatch.facts.messages.intervals import messages
from hangwatch.facts.messages.other_tag import other_tag
from hangwatch.model import Collective, StepName
from hangwatch.proof.messages import counterpart, serves
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.ledger import is_numbered, is_point_to_point

HABITUAL_ROUNDS = 2  # earlier rounds that make a habit
BEFORE_STEPS = -1  # what is of no step: the preparations, and step 0 where optimizer steps end the steps


@dataclass(frozen=True)
class LeftHabit:
    """`rank` alone made `made` of its calls with `peer` in one round, and `usual` in all rounds before it."""

    rank: int
    peer: int
    made: int
    usual: int
    rounds: int  # earlier ones that both have on record
    call: Collective  # the extra call, or the last one of the kind that it left out
    number: int  # of the round
    step: StepName | None = None  # where rounds are steps
    early: bool = False  # it went on to another send or receive in the middle of them, and waits there
    repeated: bool = False  # the line of `call` made some of them: a loop around it may have made fewer turns
    markers: str = ""  # the name of the group whose collectives divide the rounds; "" where they are steps

    @property
    def too_many(self) -> bool:
        return self.made > self.usual


@dataclass
class _Round:
    opened: Hashable  # where the collective before it was called, and of what kind its data was
    calls: list[Collective] = field(default_factory=list)  # those with peers, and collectives of other groups
    _served: dict[Hashable, list[Collective]] = field(default_factory=dict)  # what was asked for, as it is asked often

    def serving(self, op: str, peer: int, call: Collective) -> int:
        """How many of its calls are an `op` with `peer`, in the group and with the tag of `call`."""
        return len(self._serving(op, peer, call))

    def last(self, op: str, peer: int, call: Collective) -> Collective:
        """The last of them."""
        return self._serving(op, peer, call)[-1]

    def came_to(self, usual: Collective) -> bool:
        """It holds a call to the same peer by the line of `usual`."""
        return any((each.op, each.peer) == (usual.op, usual.peer) and site(each) == site(usual) for each in self.calls)

    def _serving(self, op: str, peer: int, call: Collective) -> list[Collective]:
        asked = (op, peer, call.group, call.tag)
        if asked not in self._served:
            made = [each for each in self.calls if is_point_to_point(each) and serves(each, op, peer, call)]
            self._served[asked] = made
        return self._served[asked]

    def has_passed(self, usual: Collective, before: _Round) -> bool:
        """It holds a collective that came behind `usual` in the round before, oftener than it came ahead of it."""
        place = before.calls.index(usual)
        ahead, behind = _collectives(before.calls[:place]), _collectives(before.calls[place + 1 :])
        return any(times > ahead[token] and token in behind for token, times in _collectives(self.calls).items())

    def has_overtaken(self, usual: Collective, before: _Round) -> bool:
        """It holds a send or receive that came behind `usual` in the round before."""
        ahead = _messages(before.calls[: before.calls.index(usual) + 1])
        all_of_them = _messages(before.calls)
        return any(ahead[kind] < times <= all_of_them[kind] for kind, times in _messages(self.calls).items())


def _messages(calls: list[Collective]) -> Counter[Hashable]:
    return Counter(_kind_of(call) for call in calls if is_point_to_point(call))


def _kind_of(call: Collective) -> Hashable:
    return (call.op, call.peer, call.group, call.tag)


def _collectives(calls: list[Collective]) -> Counter[Hashable]:
    return Counter((call.group, site(call)) for call in calls if is_numbered(call))


Rounds = dict[int, _Round]


@once
def left_habit(case: Case) -> LeftHabit | None:
    """The one rank by which unserved sends and receives came about; None where that is not clear.

    A receive and a send that only their tags keep apart are both there: neither was made too often, or left out.
    """
    if any(other_tag(case, entry) is not None for entry in case.blocked.values()):
        return None
    found = [each for each in _all(case) if each is not None]
    ranks = {each.rank for each in found}
    return found[0] if len(ranks) == 1 else None


def also_early(case: Case, found: LeftHabit) -> tuple[int, ...]:
    """The other ranks that went on amid that round, after as many sends or receives and where it had as many."""
    others = (rank for rank in sorted(case.blocked) if rank != found.rank)
    return tuple(rank for rank in others if _is_early_too(_rounds(case, rank, found.markers), found))


def _is_early_too(rounds: Rounds, found: LeftHabit) -> bool:
    before, now = [rounds[n] for n in sorted(rounds) if n < found.number], rounds.get(found.number)
    if now is None or len(before) < HABITUAL_ROUNDS:
        return False
    last = before[-1]
    usual, made = _messages(last.calls), _messages(now.calls)
    if any(_messages(each.calls) != usual for each in before):
        return False
    lasts = {_kind_of(call): call for call in last.calls if is_point_to_point(call)}
    counts = (found.made, found.usual)
    return any((made[kind], usual[kind]) == counts and now.has_overtaken(call, last) for kind, call in lasts.items())


def amid_its_turn(case: Case, rank: int, group: str) -> bool:
    """`rank` made equally many messages, whatever its peers, behind each collective of `group` like the last one.

    It has made no more behind the last one: so it has not come to the next, as far as one such turn tells.
    """
    rounds = _rounds(case, rank, group)
    opened = rounds[max(rounds)].opened if rounds else None
    *before, now = [_messages(rounds[n].calls).total() for n in sorted(rounds) if rounds[n].opened == opened] or [0]
    return len(set(before)) == 1 and 0 < now <= before[0]


def _all(case: Case) -> Iterator[LeftHabit | None]:
    for entry in case.blocked.values():
        call = entry.message
        if call is not None and call.peer in case.blocked:
            yield _of(case, entry, call, call.peer)


def _of(case: Case, entry: Blocked, call: Collective, peer: int) -> LeftHabit | None:
    """What one of the two did otherwise: in the present round, or in one before, for messages run ahead."""
    divisions = dict.fromkeys(("", _markers(case, entry.rank, peer)))
    found = [_by(case, entry, call, peer, markers) for markers in divisions]
    first = next((each for each in found if each is not None), None)
    return first or (_by_interval(case, entry, call, peer) if entry.activity.in_collective else None)


def _by_interval(case: Case, entry: Blocked, call: Collective, peer: int) -> LeftHabit | None:
    """The peer went past the place where it had made its part, while the rank that waits kept to its interval."""
    markers, other = _markers(case, entry.rank, peer), counterpart(call.op)
    records = [[*record(case, rank), *_unrecorded(case, rank)] for rank in (entry.rank, peer)]
    mine = messages(records[0], call.op, peer, call, markers)
    theirs = messages(records[1], other, entry.rank, call, markers)
    if not markers or mine is None or theirs is None:
        return None
    if not theirs.overdue and not (theirs.overdue_at_the_end and _ran_out(case, peer)):
        return None
    turn = theirs.last_at + theirs.every
    if (mine.every, mine.usual) != (theirs.every, theirs.usual) or turn not in (
        mine.last_at,
        mine.last_at + mine.every,
    ):
        return None
    return LeftHabit(peer, entry.rank, theirs.made, theirs.usual, theirs.turns, theirs.next, turn)


def _ran_out(case: Case, rank: int) -> bool:
    """Its loop ended with its data, and was not left on the way: its last turn was whole."""
    loader = case.ranks[rank].loader
    return loader is not None and loader.exhausted


@dataclass(frozen=True)
class _Pair:
    """The rank `rank`, which is in `call`, with its rounds, and a peer with those of that."""

    rank: int
    peer: int
    call: Collective
    mine: Rounds
    theirs: Rounds

    @property
    def other(self) -> str:
        return counterpart(self.call.op)

    def made(self, n: int) -> int:
        return self.mine[n].serving(self.call.op, self.peer, self.call)

    def served(self, n: int) -> int:
        return self.theirs[n].serving(self.other, self.rank, self.call)

    def keeps_to(self, count: int, before: Sequence[int], now: int) -> bool:
        """They exchanged as many in each of the rounds before, and the peer has made as many in this one."""
        known = all(n in self.theirs for n in (*before, now))
        return known and self.served(now) == count and all(self.made(n) == self.served(n) == count for n in before)


def _by(case: Case, entry: Blocked, call: Collective, peer: int, markers: str) -> LeftHabit | None:
    mine, theirs = _rounds(case, entry.rank, markers), _rounds(case, peer, markers)
    pair = _Pair(entry.rank, peer, call, mine, theirs)
    present = max(mine, default=0)
    alike = [n for n in sorted(mine.keys() & theirs.keys()) if mine[n].opened == mine[present].opened]
    over = {n for n in alike if not entry.activity.in_collective and _is_over(case, entry.rank, mine[n])}
    found = (
        _in_round(case, pair, markers, alike[: place + 1], over=alike[place] in over)
        for place in reversed(range(len(alike)))
    )
    first = next((each for each in found if each is not None), None)
    if first is None:
        return None
    step = None if markers else _named(case, first.rank, first.number)
    return replace(first, markers=markers, step=step)


def _named(case: Case, rank: int, step: int) -> StepName:
    entries = case.ranks[rank].evidence.board_steps
    return next((entry.name for entry in entries if entry.step == step), StepName(step=step))


def _is_over(case: Case, rank: int, made: _Round) -> bool:
    """The rank has come to a later step than that of its last call there."""
    step, last = case.ranks[rank].step.step, made.calls[-1].step if made.calls else None
    return step is not None and last is not None and last < step


def _others_keep_to(case: Case, pair: _Pair, markers: str, count: int, before: Sequence[int], now: int) -> bool:
    """Another peer of the rank kept to that number, where one round before shows it."""
    peers = {call.peer for n in before for call in pair.mine[n].calls if call.peer is not None} - {pair.peer}
    others = (replace(pair, peer=peer, theirs=_rounds(case, peer, markers)) for peer in sorted(peers))
    return bool(before) and any(other.keeps_to(count, before, now) for other in others)


def _in_round(case: Case, pair: _Pair, markers: str, alike: list[int], *, over: bool) -> LeftHabit | None:
    """What differs in the last of the `alike` rounds, where all those before it were equal."""
    *before, now = alike
    made, served = pair.made, pair.served
    usual = {count for n in before for count in (made(n), served(n))}
    if len(usual) != 1:
        return None
    count = usual.pop()
    if len(before) < HABITUAL_ROUNDS and not _others_keep_to(case, pair, markers, count, before, now):
        return None
    rank, peer, call, theirs = pair.rank, pair.peer, pair.call, pair.theirs
    if made(now) > count == served(now):
        return LeftHabit(rank, peer, made(now), count, len(before), call, now)
    if not count >= made(now) > served(now):
        return None  # where neither made them, as at the end of an epoch, none is missing
    if made(now) < count and over:
        return None  # its host runs ahead of the device, and made no more in that round: neither kept to the habit
    lasts = {n: theirs[n].last(pair.other, rank, call) for n in before}
    last = lasts[before[-1]]
    fewer = LeftHabit(peer, rank, served(now), count, len(before), last, now, repeated=theirs[now].came_to(last))
    if now < max(theirs) or theirs[now].has_passed(last, theirs[before[-1]]):
        return fewer
    if served(now) and all(theirs[now].has_overtaken(usual, theirs[n]) for n, usual in lasts.items()):
        return replace(fewer, early=True)
    return None


def _markers(case: Case, rank: int, peer: int) -> str:
    """The name of the group of both ranks whose collectives divide the rounds; "" where there is none on record."""
    names: Counter[str] = Counter()
    for group in case.ledger.groups_of(rank):
        if peer in group.heads:
            names[group.name] = sum(each.group == group.name for each in _numbered(case, rank))
    return next((name for name, times in names.most_common(1) if times), "")


def _numbered(case: Case, rank: int) -> Iterator[Collective]:
    return (call for call in record(case, rank) if is_numbered(call))


def record(case: Case, rank: int) -> Sequence[Collective]:
    """The calls of a rank in the order of their issue: those of its board and, where it has told, DDP's own."""
    entry = case.ranks[rank].evidence
    ring = entry.board_calls
    recorded = ring if any(is_point_to_point(call) for call in ring) else entry.collectives.recent
    peers = [call for call in recorded if is_point_to_point(call)]
    calls = [*peers, *case.ledger.calls(rank).values()]
    return sorted(calls, key=lambda call: call.at or 0.0) if all(call.at is not None for call in calls) else recorded


def _rounds(case: Case, rank: int, markers: str) -> Rounds:
    """The sends and receives of a rank by round; the oldest one only where the record has lost none of them.

    A round in which the rank now waits for a collective is over; the next one has then begun, and is empty.
    """
    found: Rounds = {}
    number = 0
    for call in (*record(case, rank), *_unrecorded(case, rank)):
        if is_numbered(call) and call.group == markers:
            number = call.seq
            found.setdefault(number - 1, _Round(None))
            found.setdefault(number, _Round((site(call), call.dtypes)))
        else:
            found.setdefault(number if markers else step_of(case, rank, call), _Round(None)).calls.append(call)
    if len(found) > 1 and not markers:
        found.pop(BEFORE_STEPS, None)
    if found and case.ledger.to_peers(rank) is None:
        del found[min(found)]
    return found


def _unrecorded(case: Case, rank: int) -> Iterable[Collective]:
    """The calls that the rank is in, where the record does not have them yet."""
    known = {(call.group, call.seq, call.op, call.peer) for call in record(case, rank)}
    return (e for e in case.ledger.open_calls(rank) if (e.group, e.seq, e.op, e.peer) not in known)


def step_of(case: Case, rank: int, call: Collective) -> int:
    step = case.ledger.step_of(rank, call) if is_numbered(call) else call.step
    return step if step is not None else BEFORE_STEPS
