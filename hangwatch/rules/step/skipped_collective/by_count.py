"""Ranks that are early at a call of every so many turns: they counted turns of which they left the step out."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.skip_paths import condition, evidence_of, skip_path, the_only
from hangwatch.facts.case import Case
from hangwatch.facts.differences.counters import CountsApart, counts_apart
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def left_out_while_it_counted(case: Case) -> Finding | None:
    """The call came after fewer steps than ever: the rank's counter goes on in a turn that is no step."""
    found = counts_apart(case) if case.in_trouble else None
    return _left_out(case, found) if found is not None and found.short else None


def _left_out(case: Case, found: CountsApart) -> Finding:
    steps = words.plural(found.short, "step")
    after = words.plural(found.interval - found.short, "step")
    interval = condition(found.way)
    who = case.name(found.made)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{words.capital(who)} left out {steps} since step {found.last}{skip_path(found.ways)}: by {interval}"
        f" {words.verb(len(found.made), 'it', 'they')} came to {found.call} {after} after the last time, and not"
        f" {found.interval}.",
        culprits=case.culprits(found.made, the_only(found.ways)),
        victims=case.victims(found.made),
        step=found.found.step,
        evidence=evidence_of(found.ways, "the call of a step"),
        witnesses=(
            Witness(Kind.HABIT, f"before, {found.call} came every {found.interval} steps on all of these ranks"),
            Witness(Kind.SOURCE, f"{interval} comes out alike at the same count"),
        ),
    )
