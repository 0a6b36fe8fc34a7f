"""Ranks whose counters of turns differ, of which nothing tells which one left a turn's step out."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.skip_paths import condition, passed_at
from hangwatch.facts.case import Case
from hangwatch.facts.differences.counters import CountsApart, counts_apart
from hangwatch.facts.differences.parting import counted
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def counters_differ(case: Case) -> Finding | None:
    """Some ranks are at a call of every so many turns and the others are not, and no interval shows who is early."""
    found = counts_apart(case) if case.in_trouble else None
    return _differ(case, found) if found is not None and not (found.short or found.began_apart) else None


def _differ(case: Case, found: CountsApart) -> Finding:
    blamed = (*found.made, *found.without)
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(found.made, capital=True)} called {found.call}{words.in_step(found.found.step)}, and"
        f" {case.name(found.without)} did not: {condition(found.way)} comes out alike at the same count, so their"
        " counters differ by then. One side may have left out a step, or made one more.",
        fix="count a turn on every rank, and make its step on every rank: what leaves one out must leave out both",
        victims=blamed,  # of one of them: blaming either for what came of it explains nothing
        step=found.found.step,
        evidence=(
            counted(case, found.found),
            *((passed_at(found.ways, "the call of a step"),) if found.ways else ()),
        ),
        awaited=blamed,
    )
