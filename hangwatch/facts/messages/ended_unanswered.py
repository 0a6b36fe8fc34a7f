"""A rank that ended as it should, without the send for which a peer had waited for long; that failed then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangwatch.facts.call_site import site
from hangwatch.facts.case import Case, once
from hangwatch.facts.messages.own_order import FOLLOWED
from hangwatch.facts.processes.process_end import ended_before_others
from hangwatch.model import Collective

WENT_ON = 10  # calls behind the one in which a peer waited: a rank that ends has a few left, as for a last exchange


@dataclass(frozen=True)
class EndedUnanswered:
    """`rank` ended without the send for which `waiting` stood in `receive`; behind that it made `after` more calls."""

    rank: int
    waiting: int
    receive: Collective
    after: int


@once
def ended_unanswered(case: Case) -> EndedUnanswered | None:
    """The one rank that went on for so long; None where none did, or several, or where clocks may differ."""
    ended, failed = ended_before_others(case) or ([], [])
    found = {each.rank: each for rank in failed if (each := _unanswered(case, rank, ended)) is not None}
    return next(iter(found.values())) if len(found) == 1 else None


def _unanswered(case: Case, rank: int, ended: Sequence[int]) -> EndedUnanswered | None:
    calls = case.ranks[rank].evidence.board_calls
    last = calls[-1] if calls and _is_habit(calls) else None
    if last is None or not last.op.endswith("recv") or last.peer is None or last.peer not in ended or not last.at:
        return None
    peer, then = case.ranks[last.peer], last.at
    after = sum(call.at is not None and call.at > then for call in peer.evidence.board_calls)
    near = peer.evidence.host == case.ranks[rank].evidence.host
    return EndedUnanswered(last.peer, rank, last, after) if near and after >= WENT_ON else None


def _is_habit(calls: Sequence[Collective]) -> bool:
    """The last of `calls` has often come behind the one before it: its rank did not make it once more."""
    turns = [(site(before), site(call)) for before, call in pairwise(calls)]
    return bool(turns) and turns.count(turns[-1]) > FOLLOWED
