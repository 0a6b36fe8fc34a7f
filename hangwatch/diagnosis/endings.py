"""A job that came down in a collective because its ranks had met crosswise since an earlier step."""

from __future__ import annotations

import signal
from dataclasses import replace

from ..records import Certainty, Status
from ..stacks import origin
from .case import Case, RankView
from .finding import Finding, Rule
from .lone import rank_zero_only
from .loops import early_exit, uneven_steps
from .processes import CONSEQUENCE, ENDED_BY_LAUNCHER, end_of
from .steps import skipped_collective

ABORTS = frozenset({-signal.SIGABRT, 128 + signal.SIGABRT})  # what gloo does when the sizes of messages do not fit


def ended_crosswise(case: Case) -> Finding | None:
    """Ranks were aborted or failed in collectives after the ledgers had parted: that is the cause, not the end."""
    ended = [view for view in case if (view.dead and not view.finished) or view.raised]
    if not ended or not all(_ended_in_collectives(view) for view in ended):
        return None
    rules: tuple[Rule, ...] = (uneven_steps, early_exit, rank_zero_only, skipped_collective)
    found = next((found for rule in rules if (found := rule(case)) is not None and found.culprits), None)
    if found is None:
        return None
    first = min(ended, key=_seen_last)
    how = f"Rank {first.rank} ended because of it ({end_of(first.evidence.process)})."
    return replace(found, certainty=Certainty.LIKELY, status=Status.FAILED, details=(*found.details, how))


def _ended_in_collectives(view: RankView) -> bool:
    error = view.reading.exception if view.reading is not None else None
    if error is not None and error.fatal:
        inside = (
            bool(error.frames) and "/distributed/" in error.frames[0].file and origin(error.frames[0].file) == "torch"
        )
        return inside or CONSEQUENCE.search(f"{error.type} {error.message}") is not None
    code = view.evidence.process.exit_code if view.evidence.process is not None else None
    return code in ABORTS or code in ENDED_BY_LAUNCHER


def _seen_last(view: RankView) -> float:
    return view.reading.ticker_at if view.reading is not None else 0.0


GONE: tuple[Rule, ...] = (ended_crosswise,)
