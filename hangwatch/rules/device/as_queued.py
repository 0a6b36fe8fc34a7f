"""Every host waits for its device: what the queues of the devices show, judged as those of dumps are."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.facts.queues import queues_of
from hangwatch.facts.standstill import all_hosts_wait
from hangwatch.queues import assess
from hangwatch.rules.finding import Finding


def as_queued(case: Case) -> Finding | None:
    """The cause that the order of calls in all groups shows; None where no rank is known to have left it."""
    if not all_hosts_wait(case):
        return None
    judged = assess(queues_of(case)).judgement
    if judged is None:
        return None
    found = judged.verdict
    blamed = [culprit.rank for culprit in found.culprits if culprit.rank in case.ranks]
    return Finding(
        found.cause,
        found.certainty,
        found.summary,
        fix=found.fix,
        culprits=tuple(case.ranks[each.rank].culprit(each.where) for each in found.culprits if each.rank in case.ranks),
        victims=found.victims,
        step=case.furthest_step(blamed or case.ranks),
        evidence=found.evidence,
        details=found.details,
        waits=found.waits,
        awaited=tuple(case.ranks),
    )
