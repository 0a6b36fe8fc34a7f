"""Ranks whose counters of turns differ, of which nothing tells which one left a turn's step out."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.counters import CountsApart
from hangwatch.facts.parting import counted
from hangwatch.facts.skip_paths import passed_at
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def counters_differ(case: Case, found: CountsApart) -> Finding:
    """Some ranks are at a call of every so many turns, and the others are not."""
    condition = f"`{found.way.text}` ({words.place(found.way.where)})"
    blamed = (*found.made, *found.without)
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(found.made, capital=True)} called {found.call}{words.in_step(found.found.step)}, and"
        f" {case.name(found.without)} did not: {condition} comes out alike at the same count, so their counters differ"
        " by then. One side may have left out a step, or made one more.",
        fix="count a turn on every rank, and make its step on every rank: what leaves one out must leave out both",
        victims=blamed,  # of one of them: blaming either for what came of it explains nothing
        step=found.found.step,
        evidence=(
            counted(case, found.found),
            *((passed_at(found.ways, "the call of a step"),) if found.ways else ()),
        ),
        awaited=blamed,
    )
