"""Two roles that do not make equally many calls in a row, such as one for each tensor of the weights handed over."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.unequal_runs import unequal_runs
from hangwatch.facts.case import Case, call_words
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def counted_otherwise(case: Case) -> Finding | None:
    """Which side counts wrongly is not known: the smaller one is named, of equal ones the one that makes more."""
    found = unequal_runs(case)
    if found is None:
        return None
    named = found.shorter if len(found.shorter) < len(found.longer) else found.longer
    mine, theirs = user_frame(found.one_more.frames), user_frame(found.last.frames)
    behind = case.blocked[found.shorter[0]]
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"{case.say(found.longer, 'makes', 'make', capital=True)} more than"
        f" {words.plural(found.made, found.one_more.op)} in a row{words.at(mine)}; {case.name(found.shorter)} went on"
        f" to {call_words(behind)}{words.at(behind.where)} after {found.made:,}{words.at(theirs)}.",
        fix="let both sides walk over the same list: send the number of calls, or the names of the tensors, first",
        culprits=case.culprits(named, mine if named is found.longer else theirs),
        victims=tuple(sorted(case.deadlocked - {*named})),
        step=case.furthest_step(list(found.shorter)),
        evidence=(f"both sides began at number {found.one_more.seq - found.made} of group {found.one_more.group}",),
        awaited=found.shorter,
    )
