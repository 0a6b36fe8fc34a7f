"""A job whose ranks were brought down, told by what they had called: as they stood before that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangwatch.catalogue import cause
from hangwatch.facts.calls.last_calls import end_sentences
from hangwatch.facts.case import Case
from hangwatch.facts.processes.as_it_stood import as_it_stood, how_it_ended
from hangwatch.judge.chain import with_chain
from hangwatch.judge.explained import best
from hangwatch.judge.histories import CALLS, HISTORIES
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding, Rule
from hangwatch.rules.step.collective_mismatch import collective_mismatch

STOOD = "before the end the ranks stood as follows:"


def as_they_stood(case: Case) -> Finding | None:
    """The rules for ranks that wait in their calls are asked of those that ended in theirs.

    Where nothing is known of the calls in which they ended, what their boards have counted until then tells it; where
    no rank is to blame, at least that their calls were unlike each other.
    """
    then = as_it_stood(case)
    if then is None:
        return None
    found = _first(CALLS, then) or _first(HISTORIES, case) or collective_mismatch(then)
    return until_the_end(case, then, found) if found is not None else None


def _first(rules: Iterable[Rule], case: Case) -> Finding | None:
    return best(found for rule in rules if (found := rule(case)) is not None and found.culprits)


def until_the_end(case: Case, then: Case, finding: Finding) -> Finding:
    """`finding`, which is true of the ranks as they stood (`then`), told of the job that has ended (`case`)."""
    victims = then.victims(finding.blamed) if finding.victims is None else finding.victims
    return replace(
        with_chain(then, finding, victims),
        certainty=Certainty.LIKELY if finding.certainty is Certainty.PROVEN else finding.certainty,
        summary=f"{finding.summary} Then {how_it_ended(case)}.",
        fix=cause("timeout-ahead").fix if finding.status is Status.WAITING else finding.fix,  # it worked until then
        victims=victims,
        evidence=(STOOD, *finding.evidence, *end_sentences(case)),
        status=Status.FAILED,
    )
