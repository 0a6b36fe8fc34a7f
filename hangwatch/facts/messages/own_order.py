"""Whether a rank left the order of its own calls, where nothing counts its steps: by what always followed before.

Two ranks that exchange messages may each wait for one of the other for good, and the counts on both sides differ for
both, since one of them is a turn ahead. The calls of one rank come in the order of its program, which repeats itself: a
rank that now makes a call too many, or leaves one out, breaks that order, and its peer goes on in its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

from hangwatch.facts.call_site import same, site
from hangwatch.facts.calls.call_sites import HABIT
from hangwatch.facts.case import Case
from hangwatch.facts.messages.rounds import BEFORE_STEPS, record, step_of
from hangwatch.model import Collective
from hangwatch.queues.readings import due
from hangwatch.ranks.ledger import is_point_to_point

FOLLOWED = 5  # times that one call followed: messages that are sent as the data asks for them repeat now and then
LATELY = 16  # calls: the peer has long served what a rank asked of it before them


def left_own_order(case: Case, rank: int, peers: Collection[int]) -> bool | None:
    """Lately `rank` made a call where another one had always followed, and one of them is with `peers`.

    None where the calls on record say too little of an order. A call from a new place is no break of it.
    """
    calls = case.ranks[rank].evidence.board_calls
    tokens = [_token(call) for call in calls]
    known = False
    for at in range(max(len(tokens) - LATELY, 1), len(tokens)):
        usual, _ = due(tokens[:at], FOLLOWED) or (None, 0)
        if usual is None or tokens.index(tokens[at]) == at:
            continue
        if usual == tokens[at]:
            known = True
        elif any(is_point_to_point(call) and call.peer in peers for call in (calls[at], calls[tokens.index(usual)])):
            return True
    return False if known else None


def gone_by(case: Case, rank: int, call: Collective) -> int:
    """In how many steps on record `rank` made `call` ahead of the one in which it waits; 0 unless this step lacks it.

    It must have made it in all of them: then it has gone by it now, whatever the number of that call would be.
    """
    entry, step = case.blocked.get(rank), case.ranks[rank].step.step
    waits = entry.call if entry is not None else None
    here, there = site(waits) if waits is not None else None, site(call)
    if here is None or there is None or step is None or not case.ledger.group(rank, call.group):
        return 0
    steps: dict[int, list[bool]] = {}
    for made in record(case, rank):
        place = site(made)
        is_it = place is not None and made.group == call.group and same(place, there)
        if place is not None and (is_it or same(place, here)):
            steps.setdefault(step_of(case, rank, made), []).append(is_it)
    now = steps.pop(step, [])
    before = [order for each, order in steps.items() if each != BEFORE_STEPS and False in order]
    if True in now or len(before) < HABIT or not all(order[0] for order in before):
        return 0
    return len(before)


def has_new_partner(case: Case, rank: int) -> bool:
    """Lately `rank` exchanged a message with a peer that is new to it, at a place that had long served other peers.

    Ranks that are dealt new neighbours change the order of their calls on purpose: it says of none that it is wrong.
    """
    calls = [call for call in case.ranks[rank].evidence.board_calls if is_point_to_point(call)]
    return any(_is_new(calls, at) for at in range(max(len(calls) - LATELY, 0), len(calls)))


def _is_new(calls: Sequence[Collective], at: int) -> bool:
    now, place = calls[at], site(calls[at])
    peers = Counter(
        call.peer for call in calls[:at] if (call.op, call.group) == (now.op, now.group) and site(call) == place
    )
    return now.peer not in peers and bool(peers) and min(peers.values()) >= FOLLOWED


def _token(call: Collective) -> Hashable:
    return (call.op, call.peer, call.group, call.tag, site(call))
