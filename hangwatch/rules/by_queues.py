"""What the queues of live ranks show over all process groups, judged as those of dumps are."""

from __future__ import annotations

from hangwatch.catalogue import cause
from hangwatch.facts.call_site import path
from hangwatch.facts.case import Case, once
from hangwatch.facts.queues import queues_of
from hangwatch.facts.skip_paths import evidence_of, past_lines, skip_path, the_only
from hangwatch.facts.standstill import all_hosts_wait
from hangwatch.model import Certainty, Stage
from hangwatch.queues import assess
from hangwatch.rules.finding import Finding


def as_queued(case: Case) -> Finding | None:
    """Every host waits for its device, and no other rule knows why: what the order of calls says.

    A device that does not come to a call may wait in a send or receive, and how far those are is not recorded.
    """
    found = by_queues(case) if all_hosts_wait(case) else None
    by_device = found is not None and cause(found.cause).stage is Stage.DEVICE
    return None if by_device and any(case.ledger.messages(rank) for rank in case.ranks) else found


@once
def by_queues(case: Case) -> Finding | None:
    """The cause that the calls which do not complete go back to. Of a job that may still go on nothing is proven."""
    assessed = assess(queues_of(case))
    if assessed.judgement is None:
        return None
    found, left_out = assessed.judgement.verdict, assessed.left_out
    ways = past_lines(case, path(left_out.frames)) if left_out is not None else ()
    known = found.certainty is not Certainty.UNDETERMINED
    culprits = [(each.rank, each.where) for each in found.culprits if each.rank is not None and each.rank in case.ranks]
    return Finding(
        found.cause if known else "undetermined",
        found.certainty if case.proven or not known else Certainty.LIKELY,
        f"{found.summary} That call was left out{said}." if (said := skip_path(ways)) else found.summary,
        fix=found.fix,
        culprits=tuple(case.ranks[rank].culprit(the_only(ways) or where) for rank, where in culprits),
        victims=found.victims,
        step=case.furthest_step([rank for rank, _ in culprits] or case.ranks),
        evidence=(*found.evidence, *evidence_of(ways)),
        details=found.details,
        waits=found.waits,
        awaited=tuple(case.ranks),
    )
