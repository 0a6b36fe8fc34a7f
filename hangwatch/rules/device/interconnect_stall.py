"""All ranks are in the same collective on their GPUs, and it does not end."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.devices import all_have_come, bound, nothing_completed
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def interconnect_stall(case: Case) -> Finding | None:
    """Every GPU spins in the first collective, and none completes it."""
    gpus = list(bound(case))
    if len(gpus) < 2 or not all(each.spins for each in gpus) or not all_have_come(case) or not nothing_completed(case):
        return None
    return Finding(
        "interconnect-stall",
        Certainty.LIKELY,
        f"All {len(gpus)} GPUs are fully used at low power in the first collective, and none completes it: they do not"
        " reach each other.",
        victims=tuple(each.view.rank for each in gpus),
        evidence=tuple(each.figures for each in gpus[: words.SHOWN]),
        awaited=tuple(each.view.rank for each in gpus),
    )
