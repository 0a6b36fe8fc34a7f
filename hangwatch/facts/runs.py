"""Ranks that went on from a run of equal calls, such as the forwards of a validation, while others continued it.

Up to some number the calls of all ranks come from the same lines; from there on they differ, often long before a pair
of calls differs in kind or size. Where both calls have been made before, one of them again and again until then, the
ranks that made the other one have come to the end of that run first.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.case import Case, once
from hangwatch.facts.extra_calls import alike
from hangwatch.facts.mismatches import first_mismatch, threads_of
from hangwatch.model import Collective
from hangwatch.ranks.ledger import CALLS_TOLD

REPEATED = 2  # equal calls right before the ranks part that make a run


@dataclass(frozen=True)
class WentOn:
    """`ranks` went on to the call `reached` under the number `seq`, the `others` continued the run with `repeated`."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    seq: int
    reached: Collective
    repeated: Collective
    made: int  # calls of the run before they parted


@once
def went_on(case: Case) -> WentOn | None:
    """Which ranks left a run of equal calls first, at the first number under which call paths differ."""
    found = first_mismatch(case)
    if found is None or threads_of(case, found):
        return None
    ranks, name = list(found.calls), found.group.name
    for seq in range(found.seq, max(found.seq - CALLS_TOLD, REPEATED), -1):
        before = [case.ledger.call(rank, name, seq - 1) for rank in ranks]
        if any(call is None for call in before):
            return None
        if _all_alike(before):
            return _parted(case, ranks, name, seq)
    return None


def _all_alike(calls: list[Collective | None]) -> bool:
    return all(call is not None and calls[0] is not None and alike(calls[0], call) for call in calls)


def _parted(case: Case, ranks: list[int], name: str, seq: int) -> WentOn | None:
    calls = {rank: call for rank in ranks if (call := case.ledger.call(rank, name, seq)) is not None}
    past = [call for n in range(seq - 1, 0, -1) if (call := case.ledger.call(ranks[0], name, n)) is not None]
    again = tuple(rank for rank, call in calls.items() if _run(past, call) >= REPEATED)
    left = tuple(rank for rank in calls if rank not in again)
    if len(calls) < len(ranks) or not again or not left or not _all_alike([calls[rank] for rank in left]):
        return None
    if not any(alike(calls[left[0]], call) for call in past):
        return None  # a new call, which may be one too many
    return WentOn(left, again, seq, calls[left[0]], calls[again[0]], _run(past, calls[again[0]]))


def _run(past: list[Collective], call: Collective) -> int:
    """How many calls right before it are equal to `call`."""
    return next((n for n, other in enumerate(past) if not alike(call, other)), len(past))
