"""A rank that ended its program as it should, steps ahead of a peer that failed for want of its messages.

It has not left the loop early: it has done what it did of steps that its peer is still in. That it made fewer messages
with all its peers than that peer alone counts with it shows that it had left some out before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangwatch.facts.case import Case, once
from hangwatch.facts.processes.process_end import ended_before_others
from hangwatch.model import Collective


@dataclass(frozen=True)
class EndedAhead:
    """`rank` made `made` messages until its end; its `peer`, one of those that failed, made `counted` with it alone."""

    rank: int
    peer: int
    failed: tuple[int, ...]
    step: int  # that the rank had completed, and the others had not
    made: int
    counted: int
    last: Collective


def are_ahead(case: Case, ranks: Sequence[int], others: Sequence[int]) -> bool:
    """Each of `ranks` has completed the step that the furthest of the others is in."""
    steps = [view.step.step for view in case.views((*ranks, *others))]
    known = [step for step in steps if step is not None]
    return len(known) == len(ranks) + len(others) and min(known[: len(ranks)]) > max(known[len(ranks) :])


@once
def ended_ahead(case: Case) -> EndedAhead | None:
    """The one rank that ended so, with a peer whose count shows it."""
    ended, failed = ended_before_others(case) or ([], [])
    if len(ended) != 1 or len(case.ranks) < case.size or not are_ahead(case, ended, failed):
        return None
    step = max(view.step.step or 0 for view in case.views(failed))
    sent = case.ledger.messages(ended[0])
    for peer in failed:
        for head in case.ranks[peer].evidence.board_heads:
            counted = next((each.sent + each.received for each in head.peers if each.peer == ended[0]), 0)
            mine = [call for call in sent if call.group == head.name]
            if mine and mine[-1].seq < counted:  # messages are numbered in their group, whatever the peer
                return EndedAhead(ended[0], peer, tuple(failed), step, mine[-1].seq, counted, mine[-1])
    return None
