"""What the rules for ranks that cannot exit have in common: training is over, and something holds the process."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.facts.processes.leaving import lingering_status
from hangwatch.model import Certainty, Culprit
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding


def cannot_exit(
    case: Case,
    cause: str,
    held: list[RankView],
    why: str,
    *,
    sure: bool,
    evidence: tuple[str, ...],
    culprits: tuple[Culprit, ...] | None = None,
    victims: tuple[int, ...] = (),
    fix: str = "",
) -> Finding:
    """The finding of `cause`: the ranks in `held` cannot exit, for `why`. They are the culprits by default."""
    ranks = tuple(view.rank for view in held)
    return Finding(
        cause,
        Certainty.PROVEN if sure else Certainty.LIKELY,
        f"Training is over, but {case.name(ranks)} cannot exit: {why}.",
        fix=fix,
        culprits=tuple(view.culprit() for view in held) if culprits is None else culprits,
        victims=victims,
        evidence=evidence,
        status=lingering_status(held),
        awaited=ranks,
    )
