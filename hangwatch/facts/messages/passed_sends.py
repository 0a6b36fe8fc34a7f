"""A rank that went past the send that its receiver waits for, where a rank that runs the same code stands in its own.

In the first round no rank has a habit that it could have left. What another rank of the same role does, and a condition
on a value of the rank's own in the source, say which side of a circle left something out.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.call_site import path
from hangwatch.facts.calls.skip_paths import conditional, ways_to
from hangwatch.facts.case import Case, once
from hangwatch.facts.messages.peer_totals import exchanged
from hangwatch.model import Bypass, Collective
from hangwatch.proof.waits import Blocked


@dataclass(frozen=True)
class Passed:
    """The way past a send by the source, and a rank that stands in it."""

    ways: tuple[Bypass, ...]
    witness: int


@once
def passed_sends(case: Case) -> dict[int, Passed]:
    """The ranks that went past their send."""
    found: dict[int, Passed] = {}
    sends = _sends_by_receiver(case)
    for entry in case.blocked.values():
        sender = _lacking(case, entry) if entry.rank in sends else None
        if sender is None:
            continue
        for witness, call in sends[entry.rank]:
            ways = _own_ways(case, call)
            if ways and _is_past(case.blocked[sender].call, call):
                found[sender] = Passed(ways, witness)
    return found


def _lacking(case: Case, entry: Blocked) -> int | None:
    """The sender that `entry` waits to receive from, and that waits elsewhere with a send too few."""
    call = entry.message
    sender = case.blocked.get(call.peer) if call is not None and call.peer is not None else None
    if call is None or "recv" not in call.op or sender is None or sender.to_a_peer:
        return None
    counts = exchanged(case, call, entry.rank)
    return sender.rank if counts is not None and counts[1] < counts[0] else None


def _sends_by_receiver(case: Case) -> dict[int, list[tuple[int, Collective]]]:
    """The sends in which ranks stand, each with its rank."""
    found: dict[int, list[tuple[int, Collective]]] = {}
    for entry in case.blocked.values():
        call = entry.message
        if call is not None and call.peer is not None and "send" in call.op:
            found.setdefault(call.peer, []).append((entry.rank, call))
    return found


def _own_ways(case: Case, call: Collective) -> tuple[Bypass, ...]:
    """None where a condition on the rank leads to the call: then it is not every rank's."""
    ways = ways_to(case, call)
    if any(way.asks == "rank" for way in ways):
        return ()
    return conditional(ways)


def _is_past(here: Collective | None, call: Collective) -> bool:
    """The call `here` is further down in the very function that makes `call`, reached by the same lines."""
    mine, theirs = path(here.frames) if here is not None else (), path(call.frames)
    if not mine or not theirs or mine[1:] != theirs[1:] or mine[0][0] != theirs[0][0]:
        return False
    return mine[0][1] > theirs[0][1]
