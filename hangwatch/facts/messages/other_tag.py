"""A message that its peer makes with another tag: a receive takes only messages of its own tag.

NCCL heeds no tags: it takes the messages of two ranks in the order of their calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.case import Case
from hangwatch.facts.messages.peer_totals import exchanged
from hangwatch.model import Collective
from hangwatch.proof.messages import counterpart
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.device_waits import on_device
from hangwatch.ranks.ledger import is_point_to_point, is_same
from hangwatch.ranks.tensors import elements


@dataclass(frozen=True)
class OtherTag:
    """The receive of `receiver` and the send of `sender`, of which none serves the other for its tag alone."""

    sender: int
    receiver: int
    sent: int
    asked: int
    sends: bool  # it stands in that send; else it has returned from it


def other_tag(case: Case, entry: Blocked) -> OtherTag | None:
    """What the peer of the message that `entry` stands in has made with another tag, without a counterpart either."""
    call = entry.message
    if call is None or call.peer is None or not _lacks(case, entry.rank, call):
        return None
    group = case.ledger.group(entry.rank, call.group)
    if group is None or on_device(group, entry.rank):
        return None
    inside = case.ledger.open_calls(call.peer)
    made = [*inside, *reversed(case.ledger.messages(call.peer))]
    theirs = next((each for each in made if _differs(entry, call, each)), None)
    if theirs is None or not _lacks(case, call.peer, theirs):
        return None
    if "recv" in call.op:
        stands = any(is_same(each, theirs) and each.tag == theirs.tag for each in inside)
        return OtherTag(call.peer, entry.rank, theirs.tag or 0, call.tag or 0, stands)
    return OtherTag(entry.rank, call.peer, call.tag or 0, theirs.tag or 0, sends=True)


def _differs(entry: Blocked, call: Collective, theirs: Collective) -> bool:
    """It would serve `call`, of as many elements where both are known, were it of the same tag."""
    if not is_point_to_point(theirs) or counterpart(call.op) not in theirs.op:
        return False
    sizes = elements(call.sizes), elements(theirs.sizes)
    alike = None in sizes or sizes[0] == sizes[1]
    ends = (theirs.peer, theirs.group) == (entry.rank, call.group)
    return alike and ends and (theirs.tag or 0) != (call.tag or 0)


def _lacks(case: Case, rank: int, call: Collective) -> bool:
    counts = exchanged(case, call, rank)
    return counts is not None and counts[0] > counts[1]
