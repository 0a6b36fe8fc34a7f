"""One rank alone in a send or receive to which a check of the rank leads, in a program that its peer runs too."""

from __future__ import annotations

from itertools import pairwise

from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.model import Frame
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import origin

Step = tuple[Frame, Frame]  # from a frame to the one that called it


def alone_with_a_message(case: Case) -> RankView | None:
    """The only rank of a circle that waits in a message, from where no rank ever made one, for a peer that goes by.

    The others of the circle stand in calls that they have made before.
    """
    circle = [case.blocked[rank] for rank in case.graph.cycle(case.deadlocked)]
    messages, others = [each for each in circle if each.to_a_peer], [each for each in circle if not each.to_a_peer]
    if len(messages) != 1 or not all(sites_of(case).regular(each.rank) for each in others):
        return None
    lone = case.ranks[messages[0].rank]
    ranks = [rank for rank in case.ranks if rank != lone.rank]
    is_new = lone.now.guard == "rank" and sites_of(case).is_new_to_all(lone.rank, ranks)
    return lone if is_new and _goes_by(case, messages[0]) else None


def _goes_by(case: Case, lone: Blocked) -> bool:
    """The peer leads through the same functions to its part, by another line: the two have no roles of their own."""
    at, call = sites_of(case).apart(lone.rank, [rank for rank in case.ranks if rank != lone.rank]), lone.call
    if at is None or call is None or call.peer is None:
        return False
    steps = [pair for pair in pairwise(call.frames) if pair[1].source_line == at.source_line]
    made = [each for each in case.ledger.messages(call.peer) if each.peer == lone.rank]
    return any(_is_beside(one, other) for one in steps for each in made for other in pairwise(each.frames))


def _is_beside(one: Step, other: Step) -> bool:
    """From one function to one other, of the user's both, by another line."""
    (inner, outer), (inner_there, outer_there) = one, other
    same = outer.scope == outer_there.scope and inner.scope == inner_there.scope
    return same and origin(inner.file) == "user" and outer.line != outer_there.line
