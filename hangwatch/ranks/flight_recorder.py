"""Counts of torch's flight recorder, read from its calls. Dumps of it are read by `hangwatch.recorder`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangwatch.model import Collective, RankEvidence
from hangwatch.ranks.device_waits import QUEUES

AUTOGRAD = "pt_autograd"  # threads of autograd's own: on a device they issue what backward reduces


def completed_through(calls: Iterable[tuple[int, bool]]) -> int:
    """Up to which number all `calls` (numbers, and whether each is completed) are completed; -1 for none.

    The recorder's status has the one that was completed last. Where gloo's threads complete two at a time that may be
    the first of them, and it stays so until a third is completed.
    """
    known = dict(calls)
    pending = [number for number, done in known.items() if not done]
    return (min(pending) - 1 if pending else max(known, default=-1)) or -1


def with_comparable_places(ranks: tuple[RankEvidence, ...]) -> tuple[RankEvidence, ...]:
    """The same ranks, without the places of calls that autograd's threads issued, where not all ranks can have them.

    A board has no such calls, so a rank of which only that is known is not to seem to lack them. In a group of two
    backends no number tells which call is meant.
    """
    if not any(by_autograd(call) and call.frames for rank in ranks for call in rank.collectives.recent):
        return ranks
    heads = (head for rank in ranks for head in rank.collectives.heads)
    known = all(rank.collectives.source != "board" for rank in ranks)
    if known and all(QUEUES.fullmatch(head.backend.lower()) for head in heads):
        return ranks
    return tuple(_without_places(rank) for rank in ranks)


def _without_places(rank: RankEvidence) -> RankEvidence:
    recent = tuple(replace(call, frames=()) if by_autograd(call) else call for call in rank.collectives.recent)
    return replace(rank, collectives=replace(rank.collectives, recent=recent))


def by_autograd(call: Collective) -> bool:
    """A thread of autograd's own issued it."""
    return call.thread_name.startswith(AUTOGRAD)
