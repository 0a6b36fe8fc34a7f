"""A rank whose send or receive names another peer than the rank that waits for it.

In a circle of sends and receives any rank may seem to wait for the wrong one. What a rank did with its peers before,
and what other ranks do from the same lines, say which of them has left the pattern of the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import Site, site
from hangwatch.facts.case import Case, once
from hangwatch.facts.messages.own_order import FOLLOWED
from hangwatch.facts.messages.peer_totals import exchanged
from hangwatch.facts.messages.rounds import record
from hangwatch.model import Collective, Frame
from hangwatch.proof.messages import counterpart, serves
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.ledger import is_point_to_point, is_same
from hangwatch.ranks.tensors import elements
from hangwatch.stacks.frames import user_frame


@dataclass(frozen=True)
class WrongPeer:
    """`rank` waits in `call` with `named`, which has no part in it, and `expected` in `other` for `rank`."""

    rank: int
    call: Collective
    named: int
    expected: int
    other: Collective
    why: str  # what speaks for it, as a sentence
    left_habit: bool = False  # from that line it had named `expected` before, time and again

    @property
    def places(self) -> tuple[Frame | None, Frame | None]:
        return user_frame(self.call.frames), user_frame(self.other.frames)


@once
def wrong_peer(case: Case) -> WrongPeer | None:
    """The one rank that names another peer than before, or than other ranks do; None where that is none or several."""
    found = [each for entry in case.blocked.values() if (each := _by(case, entry)) is not None]
    return found[0] if len(found) == 1 else None


def _by(case: Case, entry: Blocked) -> WrongPeer | None:
    call = entry.message
    stuck = case.all_wait or entry.rank in case.deadlocked
    if call is None or call.peer is None or site(call) is None or not stuck or not _lacks(case, entry.rank, call):
        return None
    if any(other.peer in (entry.rank, None) for other in _messages_now(case, call.peer)):
        return None  # the two are in one exchange: its order is wrong, or a message of it is lacking
    waiting = _waiting_for(case).get(entry.rank, [])
    fits = [(rank, other) for rank, other in waiting if _fits(case, entry.rank, call, rank, other)]
    if len(fits) != 1:
        return None
    expected, other = fits[0]
    left = _left_habit(case, entry.rank, call, expected)
    why = (
        left
        or _of_its_partners(case, entry.rank, call, call.peer, expected)
        or _of_other_ranks(case, entry.rank, call, other)
    )
    return WrongPeer(entry.rank, call, call.peer, expected, other, why, bool(left)) if why else None


@once
def _waiting_for(case: Case) -> dict[int, list[tuple[int, Collective]]]:
    """The ranks that wait in messages with each peer, and their calls."""
    found: dict[int, list[tuple[int, Collective]]] = {}
    for entry in case.blocked.values():
        call = entry.message
        if call is not None and call.peer is not None:
            found.setdefault(call.peer, []).append((entry.rank, call))
    return found


def _lacks(case: Case, rank: int, call: Collective) -> bool:
    """Its peer has made no call that could serve it."""
    counts = exchanged(case, call, rank)
    return counts is not None and counts[0] > counts[1]


def _messages_now(case: Case, rank: int) -> list[Collective]:
    return [each for each in case.ledger.open_calls(rank) if is_point_to_point(each)]


def _fits(case: Case, rank: int, call: Collective, other: int, theirs: Collective) -> bool:
    """With another peer named, `call` would serve the wait of `other`."""
    sizes = elements(call.sizes), elements(theirs.sizes)
    if other == call.peer or not serves(theirs, counterpart(call.op), rank, call):
        return False
    return (None in sizes or sizes[0] == sizes[1]) and _lacks(case, other, theirs)


def _before(case: Case, rank: int, call: Collective) -> list[Collective]:
    """The messages of `rank` on record, without `call`."""
    return [each for each in case.ledger.messages(rank) if not is_same(each, call)]


def _left_habit(case: Case, rank: int, call: Collective, expected: int) -> str:
    """In turn after turn that line had named one peer alone.

    A loop over several peers makes calls of one line too, perhaps many in a row with each of them: those are one turn.
    """
    made = [each for each in record(case, rank) if not is_same(each, call)]
    here = [n for n, each in enumerate(made) if is_point_to_point(each) and site(each) == site(call)]
    turns, steps = len({*here} - {n + 1 for n in here}), {made[n].step for n in here}
    if turns < FOLLOWED or (None not in steps and len(steps) < FOLLOWED) or {made[n].peer for n in here} != {expected}:
        return ""
    times, at = words.plural(len(here), "call"), words.place(user_frame(call.frames))
    return f"rank {rank} named rank {expected} in all {times} from {at} before"


def _of_its_partners(case: Case, rank: int, call: Collective, named: int, expected: int) -> str:
    """It has exchanged messages with the rank that waits for it, and none with the other, which has its own partner.

    Of a rank in no message, or in its first with a peer, nothing says that it has not left out its part.
    """
    partners = {each.peer for each in _before(case, rank, call)}
    if expected not in partners or named in partners or not _is_first_there(case, rank, call):
        return ""
    if not any(now.peer in {each.peer for each in _before(case, named, now)} for now in _messages_now(case, named)):
        return ""
    return f"rank {rank} has exchanged messages with rank {expected} before, and none with rank {named}"


def _of_other_ranks(case: Case, rank: int, call: Collective, other: Collective) -> str:
    """Between other ranks, what the one line sent the other received.

    Where the rank that it names waits in vain for a peer as well, all may reckon their peers alike, and wrongly.
    """
    if call.peer is None or any(_lacks(case, call.peer, each) for each in _messages_now(case, call.peer)):
        return ""
    here, there = site(call), site(other)
    send, receive = (here, there) if "send" in call.op else (there, here)
    if send is None or receive is None or not _is_first_there(case, rank, call):
        return ""
    sender, receiver = next(_that_met(case, send, receive), (None, None))
    if sender is None:
        return ""
    sent, received = (call, other) if "send" in call.op else (other, call)
    return (
        f"rank {receiver} received{words.at(user_frame(received.frames))} what rank {sender}"
        f" sent{words.at(user_frame(sent.frames))}"
    )


def _is_first_there(case: Case, rank: int, call: Collective) -> bool:
    """It has made no call from that line before, and no rank of the job names several peers from it."""
    here = site(call)
    if case.ledger.to_peers(rank) is None or any(site(each) == here for each in _before(case, rank, call)):
        return False
    named = ({each.peer for each in case.ledger.messages(other) if site(each) == here} for other in case.ranks)
    return all(len(peers) < 2 for peers in named)


def _that_met(case: Case, send: Site, receive: Site) -> Iterator[tuple[int, int]]:
    """The sender and the receiver of each message that was sent from the one line, and received at the other."""
    for rank in case.ranks:
        sends = case.ledger.to_peers(rank) or []
        from_it = {(each.peer, each.group, each.tag): each for each in sends if _is_sent_from(each, send)}
        for (peer, _, _), like in from_it.items():
            if peer is not None and any(pair == (send, receive) for pair in _pairs(case, rank, peer, like)):
                yield rank, peer


def _is_sent_from(call: Collective, send: Site) -> bool:
    return "send" in call.op and site(call) == send


def _pairs(case: Case, sender: int, receiver: int, like: Collective) -> Iterator[tuple[Site | None, Site | None]]:
    """Messages from one rank to another are received in the order in which they were sent; none where some are lost."""
    sent, received = case.ledger.to_peers(sender), case.ledger.to_peers(receiver)
    if sent is None or received is None or any(each.peer is None for each in received):
        return
    sends = (site(each) for each in sent if serves(each, "send", receiver, like))
    receives = (site(each) for each in received if serves(each, "recv", sender, like))
    yield from zip(sends, receives, strict=False)
