"""A call that most ranks make, and that the others have gone by under a condition on the rank, or a check of data."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only
from hangwatch.facts.case import Case
from hangwatch.facts.differences.decisions import disagreement
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def went_by_for_its_rank(case: Case) -> Finding | None:
    """The few returned or took another branch ahead of a call that all must make: because of their rank, or a check.

    A check that data is there is meant to hold on all ranks, and held on most.
    """
    found = disagreement(case)
    if found is None or not case.in_trouble or found.found is not None or len(found.without) >= len(found.made):
        return None
    asked = {way.asks for way in found.ways}
    if asked not in ({"rank"}, {"check"}):
        return None
    few, most = case.name(found.without), case.name(found.made)
    first = case.ranks[found.without[0]]
    now = words.at(first.where)
    are = words.verb(len(found.without), "is", "are")
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{words.capital(few)} went by {found.name}{words.in_step(found.step)}{skip_path(found.ways)}, and {are} in"
        f" {first.now.call or 'a later call'}{now} already; {case.wait_words(found.made)} in it.",
        fix="call it on every rank: move it out of the branch on the rank, and return behind it"
        if asked == {"rank"}
        else "",
        culprits=case.culprits(found.without, the_only(found.ways)),
        victims=case.victims(found.without),
        step=found.step,
        evidence=evidence_of(found.ways),
        witnesses=(Witness(Kind.MAJORITY, f"most ranks made it: {most}"),),
        status=case.failed_status,
    )
