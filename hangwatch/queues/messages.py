"""Sends and receives that one end left out by its own habit, where the other end did as ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangwatch import words
from hangwatch.model import Certainty

from .finding import Finding, all_waits, victims
from .follow import Chain
from .history import Histories
from .model import COUNTERPARTS, Call, Communicator, Message, Queues
from .names import at, ranks
from .pairs import fits
from .readings import due
from .stuck import Kind, Stuck
from .turns import OFTEN

_WORDS = {"send": ("send", "to"), "recv": ("receive", "from")}


@dataclass(frozen=True, slots=True)
class _Habit:
    """Which message with its peer was due where a rank stands, and which one it made; `times` it had been so before."""

    made: Call
    due: Call
    times: int
    behind: bool = False  # the message that was due is on record behind it

    @property
    def kept(self) -> bool:
        return self.made == self.due


def left_out_before(queues: Queues, chain: Chain, histories: Histories) -> Finding | None:
    """The finding where a send meets another receive than it should, since one end went on to its next message.

    What was due there fits the message of the other end, which kept to its own order.
    """
    root = chain.roots[0]
    habits = {rank: _habit(queues, root, rank, histories) for rank in root.peers}
    for rank, other in (root.peers, root.peers[::-1]):
        mine, theirs = habits[rank], habits[other]
        if mine is None or theirs is None or mine.kept or not theirs.kept or not fits(mine.due, theirs.made):
            continue
        if mine.behind and _made_as_many(queues, root.group, rank, other, mine.made):
            return _swapped(chain, rank, other, mine, theirs)
        if min(mine.times, theirs.times) >= OFTEN:
            return _left_out(chain, rank, other, mine, theirs)
    return None


def _habit(queues: Queues, root: Stuck, rank: int, histories: Histories) -> _Habit | None:
    """None where its messages of that way followed no rule, or it did not go on to what comes behind the due one."""
    lane, own = root.group.peers[rank], root.calls[rank]
    until = [place for place in range(len(lane)) if lane.order[place] <= root.order[rank]]
    calls = [call for place in until if (call := queues.call(lane, place)).message == own.message]
    *before, last = map(histories.token_of, calls)
    token, times = due(before, 1) or (-1, 0)
    usual = next((call for call in reversed(calls[:-1]) if histories.token_of(call) == token), None)
    if usual is None:
        return None
    if token == last:
        return _Habit(own, own, times)
    following, _ = due([*before, token], 1) or (-1, 0)
    later = (queues.call(lane, place) for place in range(len(until), len(lane)))
    behind = any(histories.token_of(call) == token for call in later)
    return _Habit(own, usual, times, behind) if following == last else None


def _swapped(chain: Chain, rank: int, other: int, mine: _Habit, theirs: _Habit) -> Finding:
    """Both ends have made equally many messages, and this one made two of them in the other order."""
    (word, to), (counterpart, _) = _WORDS[mine.due.op], _WORDS[theirs.made.op]
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {rank} made two messages in another order than before: its {word} {to} rank {other}{at(mine.made)} came"
        f" before that{at(mine.due)}, and meets the {counterpart} of rank {other}{at(theirs.made)}, which is of another"
        " size or type.",
        culprits=((rank, mine.made.where),),
        victims=victims(chain.path, (rank,)),
        evidence=(
            f"until then rank {rank} made the {word}{at(mine.due)} first; rank {other} kept to its own order",
            f"{ranks((rank, other))} have made equally many such messages",
        ),
        waits=all_waits(chain.path, (rank,)),
        fix=f"make the {word}s of rank {rank} in the order of the {counterpart}s of rank {other}",
    )


def _left_out(chain: Chain, rank: int, other: int, mine: _Habit, theirs: _Habit) -> Finding:
    (word, to), (counterpart, back) = _WORDS[mine.due.op], _WORDS[theirs.made.op]
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {rank} left out the {word} {to} rank {other}{at(mine.due)}, and went on to its next one{at(mine.made)}:"
        f" that meets the {counterpart} of rank {other}{at(theirs.made)}, and they differ in size or type.",
        culprits=((rank, mine.due.where),),
        victims=victims(chain.path, (rank,)),
        evidence=(
            f"in {words.plural(mine.times, 'earlier round')} rank {rank} made that {word}{at(mine.due)} there",
            f"rank {other} made its {counterpart} {back} rank {rank} in the same order as ever",
        ),
        waits=all_waits(chain.path, (rank,)),
        fix=f"give each {counterpart} of rank {other} its {word} on rank {rank}, in every round",
    )


# ------------------------------------------------------------------------------------------ counts


@dataclass(frozen=True, slots=True)
class Uneven:
    """How many messages of one way both ends have made, where these are not equally many."""

    rank: int
    peer: int
    op: str  # of `rank`
    made: int
    met: int

    def __str__(self) -> str:
        (word, to), (counterpart, back) = _WORDS[self.op], _WORDS[COUNTERPARTS[self.op]]
        own = f"rank {self.rank} has made {words.plural(self.made, word)} {to} rank {self.peer}"
        return f"{own}, and rank {self.peer} {words.plural(self.met, counterpart)} {back} it"

    @property
    def fix(self) -> str:
        (word, _), (counterpart, _) = _WORDS[self.op], _WORDS[COUNTERPARTS[self.op]]
        return f"give each {word} of rank {self.rank} its {counterpart} on rank {self.peer}, before the next collective"


def uneven(queues: Queues, root: Stuck) -> Uneven | None:
    """The counts of a message that waits, where all of both ends are on record; None where they are equal."""
    if root.kind is not Kind.PEER or any(lane.lost for lane in root.group.peers.values()):
        return None
    (rank,), (peer,) = root.waiting, root.awaited
    if peer not in root.group.peers:
        return None
    call = root.calls[rank]
    made, met = _count(queues, root.group, rank, call.message), _count(queues, root.group, peer, call.counterpart)
    return Uneven(rank, peer, call.op, made, met) if made > met else None


# ------------------------------------------------------------------------------------------ batches


def left_out_of_batch(queues: Queues, chain: Chain) -> Finding | None:
    """The finding where the awaited rank made a batch of sends and receives without the one that is missed.

    All of its other batches from that line had it; as many of them lack it as sends and receives differ in number.
    """
    root = chain.roots[0]
    (rank,), (peer,) = root.waiting, root.awaited
    call = root.calls[rank]
    wanted = call.counterpart
    usual, lacking = _lacking(_batches(queues, root.group, peer, wanted), wanted)
    more = _count(queues, root.group, rank, call.message) - _count(queues, root.group, peer, wanted)
    return _of_batch(queues, chain, wanted, lacking, usual) if lacking and more == len(lacking) else None


def _lacking(batches: Mapping[int, list[Message]], wanted: Message) -> tuple[int, list[int]]:
    """How many operations most batches have, which are alike, and the few that have all of these but the wanted one."""
    having = [number for number, made in batches.items() if wanted in made]
    if len(having) < OFTEN:
        return 0, []
    usual = batches[having[0]]
    rest = [each for each in usual if each != wanted]
    lacking = [number for number in batches if number not in having and number > having[0]]
    alike = all(batches[number] == usual for number in having) and all(batches[number] == rest for number in lacking)
    return len(usual), lacking if alike and rest and len(lacking) < len(having) else []


def _batches(queues: Queues, group: Communicator, rank: int, wanted: Message) -> dict[int, list[Message]]:
    """By number the operations of a rank's batches from the line that makes such ones; none where older are lost."""
    lane = group.peers.get(rank)
    if lane is None or lane.lost:
        return {}
    calls = list(zip(lane.numbers, queues.calls_in(lane), strict=True))
    lines = {call.where for _, call in calls if call.message == wanted}
    found: dict[int, list[Message]] = {}
    for number, call in calls:
        if call.where in lines and call.source is not None:
            found.setdefault(number, []).append(call.message)
    return found if len(lines) == 1 and None not in lines else {}


def _made_as_many(queues: Queues, group: Communicator, rank: int, other: int, call: Call) -> bool:
    """Whether both ends have made as many messages of that way, where all of them are on record."""
    if any(group.peers[each].lost for each in (rank, other)):
        return False
    return _count(queues, group, rank, call.message) == _count(queues, group, other, call.counterpart)


def _count(queues: Queues, group: Communicator, rank: int, wanted: Message) -> int:
    lane = group.peers.get(rank)
    return sum(call.message == wanted for call in queues.calls_in(lane)) if lane is not None else 0


def _of_batch(queues: Queues, chain: Chain, wanted: Message, lacking: list[int], usual: int) -> Finding:
    root = chain.roots[0]
    (rank,), (peer,) = root.waiting, root.awaited
    (word, to), (counterpart, _) = _WORDS[wanted[0]], _WORDS[root.calls[rank].op]
    lane = root.group.peers[peer]
    call = queues.call(lane, lane.places(lacking[0])[0])
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {peer} left the {word} {to} rank {rank} out of its batch of sends and receives {lacking[0]} in"
        f" {root.group.title}{at(call)}, with {words.plural(usual - 1, 'operation')} instead of the usual {usual}:"
        f" since then the two ranks are {words.plural(len(lacking), word)} apart, and the last {counterpart}"
        f" of rank {rank} has no counterpart.",
        culprits=((peer, call.where),),
        victims=victims(chain.path, (peer,)),
        evidence=(f"all other batches of rank {peer} from there have that {word}",),
        waits=all_waits(chain.path),
        fix=f"put the same sends and receives into every batch of rank {peer}",
    )
