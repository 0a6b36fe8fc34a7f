"""How a turn of a rank can go on without one of its messages, by the source of its loop."""

from __future__ import annotations

from hangwatch.facts.calls.skip_paths import conditional, ways_to
from hangwatch.facts.case import Case
from hangwatch.model import Bypass, Collective


def past_message(case: Case, call: Collective) -> tuple[Bypass, ...]:
    """How a turn goes on without the call; a condition on the rank is answered as in all rounds before."""
    return tuple(way for way in conditional(ways_to(case, call)) if way.asks != "rank")


def past_its_sends(case: Case, rank: int, group: str, peer: int | None = None) -> tuple[Bypass, ...]:
    """How a turn of the rank goes on without the send that it made last, to that peer where one is given."""
    made = (call for call in reversed(case.ranks[rank].evidence.board_calls) if call.group == group)
    sends = (call for call in made if "send" in call.op and peer in (None, call.peer))
    last = next(sends, None)
    return past_message(case, last) if last is not None else ()
