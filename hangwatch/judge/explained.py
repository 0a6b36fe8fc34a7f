"""Which finding is told, where several rules find something: the first in the order, or one that explains it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hangwatch.catalogue import CATALOGUE, cause
from hangwatch.rules.finding import Finding, Rule

EXPLAINED = {"undetermined", *(other for entry in CATALOGUE for other in entry.explains)}


def best(findings: Iterator[Finding]) -> Finding | None:
    """The first finding, or a later one that explains it; no more findings are asked for than that needs."""
    found = next(findings, None)
    while found is not None and found.cause in EXPLAINED:
        other = next(findings, None)
        if other is None:
            break
        found = _because_of(other, found) if explains(other, found) else found
    return found


def may_explain(rule: Rule, found: str) -> bool:
    """It is a rule of a cause that explains the cause `found`, by the catalogue; any may explain an unknown one."""
    homes = [entry.rules for entry in CATALOGUE if found in entry.explains]
    return found == "undetermined" or any(f"{rule.__module__}.".startswith(f"{home}.") for home in homes)


def explains(other: Finding, found: Finding) -> bool:
    """`other` says why the ranks that `found` blames came to that; or why the victims of an unknown cause waited.

    That an awaited rank is gone by now may itself be a consequence of the abort.
    """
    ranks = {*other.blamed}
    if found.cause == "undetermined":
        return bool(ranks) and other.cause != "rank-died" and ranks.isdisjoint(found.victims or ())
    return found.cause in cause(other.cause).explains and ranks in ({*found.blamed}, {*found.expected})


def _because_of(other: Finding, found: Finding) -> Finding:
    """`other`, with what is known of the end of the job."""
    if found.cause != "undetermined":
        return other
    return replace(other, status=other.status or found.status, evidence=(*other.evidence, *found.evidence))
