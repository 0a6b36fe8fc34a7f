"""A rank that serves requests, such as a parameter server, and went on without the answer to one of them.

No collective divides such an exchange into rounds, and the ranks that ask come in any order. What repeats itself is
what the serving rank does for each of them: until then the answer had followed each request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from hangwatch.facts.call_site import site
from hangwatch.facts.case import Case, once
from hangwatch.facts.messages.own_order import FOLLOWED
from hangwatch.facts.messages.rounds import record
from hangwatch.model import Collective
from hangwatch.proof.messages import counterpart
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.ledger import is_point_to_point


@dataclass(frozen=True)
class Unanswered:
    """`rank` made its call `request` for `peer`, and went on without a call like `answer`, for which `peer` waits."""

    rank: int
    peer: int
    request: Collective
    answer: Collective  # the last one that it gave
    times: int  # as often on record that answer came right behind such a request, and no other call but this once


@once
def unanswered(case: Case) -> Unanswered | None:
    """The one rank that left out an answer; None where there is none, or more."""
    found = [each for entry in case.blocked.values() if (each := _by_peer_of(case, entry)) is not None]
    return found[0] if len(found) == 1 else None


def _by_peer_of(case: Case, entry: Blocked) -> Unanswered | None:
    call = entry.message
    if call is None or call.peer is None or call.peer not in case.blocked:
        return None  # one that does not wait may yet answer
    alone = [other.rank for other in case.blocked.values() if _is_asked(other, call.peer)] == [entry.rank]
    calls = [each for each in record(case, call.peer) if is_point_to_point(each)]
    inside = case.ledger.open_calls(call.peer)
    tokens = [_token(each) for each in calls]
    followed: dict[Hashable, list[int]] = {}
    for at in range(1, len(calls)):
        followed.setdefault(tokens[at - 1], []).append(at)
    for places in followed.values():
        (usual, times), *others = Counter(tokens[at] for at in places).most_common()
        odd = next((at for at in places if tokens[at] != usual), None)
        if odd is None or times < FOLLOWED or sum(count for _, count in others) > 1:
            continue
        request, answer = calls[odd - 1], next(calls[at] for at in reversed(places) if tokens[at] == usual)
        goes_on = tokens.count(tokens[odd]) > 1  # a call from a new place may be what comes behind the loop
        of_it = request.peer == entry.rank or (request.peer is None and alone)
        over = any(each.peer == entry.rank and each not in inside for each in calls[odd:])  # it was served since
        if goes_on and of_it and not over and _serves(answer, call):
            return Unanswered(call.peer, entry.rank, request, answer, times)
    return None


def _is_asked(entry: Blocked, peer: int) -> bool:
    return entry.message is not None and entry.message.peer == peer


def _serves(answer: Collective, call: Collective) -> bool:
    return counterpart(call.op) in answer.op and (answer.group, answer.tag or 0) == (call.group, call.tag or 0)


def _token(call: Collective) -> Hashable:
    """The operation, group and place of a call, without its peer."""
    return (call.op, call.group, site(call))
