"""Places of calls that autograd's threads issued: the way to backward, which not every rank has recorded."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from hangwatch.model import RankEvidence
from hangwatch.ranks.flight_recorder import by_autograd
from hangwatch.ranks.two_backends import of_two_backends


def with_comparable_places(ranks: tuple[RankEvidence, ...]) -> tuple[RankEvidence, ...]:
    """The same ranks, without the places of calls that autograd's threads issued, where not all ranks can have them.

    A board has no such calls, so a rank of which only that is known is not to seem to lack them. In a group of two
    backends no number tells which call is meant.
    """
    by_board = any(rank.collectives.source == "board" for rank in ranks)
    doubtful = {head.name for rank in ranks for head in rank.collectives.heads if by_board or of_two_backends(head)}
    return tuple(_without_places(rank, doubtful) for rank in ranks) if doubtful else ranks


def _without_places(rank: RankEvidence, groups: Set[str]) -> RankEvidence:
    recent = rank.collectives.recent
    kept = tuple(
        replace(call, frames=()) if call.frames and call.group in groups and by_autograd(call) else call
        for call in recent
    )
    return replace(rank, collectives=replace(rank.collectives, recent=kept)) if kept != recent else rank
