"""Ranks that went on from a later batch of the data than others: they come to the end of it, or of the steps, first."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import Uneven, resumed_earlier

FIX_RESUMED = (
    "go on from one batch on every rank: agree on the step of the checkpoint (all_reduce with MIN) and load that one on"
    " all of them, and count a checkpoint only once all ranks have written theirs"
)


def resumed_later(case: Case, uneven: Uneven) -> str:
    """` (which it had resumed at a later batch than rank 1)`, of the short ranks; "" where they had not."""
    earlier = resumed_earlier(case, uneven)
    they = "it" if len(uneven.short) == 1 else "they"
    return f" (which {they} had resumed at a later batch than {case.name(earlier)})" if earlier else ""
