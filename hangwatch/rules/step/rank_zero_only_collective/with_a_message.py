"""One rank alone in a send or receive to which a check of the rank leads, in a program that its peer runs too."""

from __future__ import annotations

from hangwatch.facts.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.model import Frame
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.view import RankView


def alone_with_a_message(case: Case) -> RankView | None:
    """The only rank of a circle that waits in a message, from where no rank ever made one, for a peer that goes by.

    The others of the circle stand in calls that they have made before.
    """
    circle = [case.blocked[rank] for rank in case.graph.cycle(case.deadlocked)]
    messages, others = [each for each in circle if each.to_a_peer], [each for each in circle if not each.to_a_peer]
    if len(messages) != 1 or not all(sites_of(case).regular(each.rank) for each in others):
        return None
    lone = case.ranks[messages[0].rank]
    return lone if lone.now.guard == "rank" and _is_new(case, lone) and _goes_by(case, messages[0]) else None


def _is_new(case: Case, lone: RankView) -> bool:
    sites = sites_of(case)
    return sites.regular(lone.rank) is False and not sites.shared(lone.rank, [r for r in case.ranks if r != lone.rank])


def _goes_by(case: Case, lone: Blocked) -> bool:
    """The peer comes through the function that makes the lone call, by other lines of it: it is no role of its own."""
    at, call = sites_of(case).apart(lone.rank, [rank for rank in case.ranks if rank != lone.rank]), lone.call
    if at is None or call is None or call.peer is None:
        return False
    callers = [frame for frame in call.frames if (frame.file, frame.line) == (at.file, at.line)]
    made = [each for each in case.ledger.messages(call.peer) if each.peer == lone.rank]
    return any(_is_beside(frame, caller) for caller in callers for each in made for frame in each.frames)


def _is_beside(frame: Frame, caller: Frame) -> bool:
    return (frame.file, frame.function) == (caller.file, caller.function) and frame.line != caller.line
