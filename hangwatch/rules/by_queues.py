"""What the queues of live ranks show over all process groups, judged as those of dumps are."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.catalogue import Cause, cause
from hangwatch.catalogue.step import OUT_OF_CACHES
from hangwatch.facts.call_site import path
from hangwatch.facts.calls.queues import assessed
from hangwatch.facts.calls.skip_paths import by_a_cache, evidence_of, no_way_past, past_lines, skip_path, the_only
from hangwatch.facts.case import Case, once
from hangwatch.facts.processes.standstill import all_hosts_wait
from hangwatch.model import Bypass, Certainty, Frame, Stage
from hangwatch.queues.finding import Finding as Queued
from hangwatch.rules.finding import Finding
from hangwatch.rules.undetermined import without_cause
from hangwatch.stacks.frames import origin, user_frame


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
    said = assessed(case)
    if said.judgement is None:
        return None
    found, ways = said.judgement.verdict, _ways_past(case, said.found)
    known = found.certainty is not Certainty.UNDETERMINED or (bool(ways) and found.cause == "skipped-collective")
    culprits = [(each.rank, each.where) for each in found.culprits if each.rank is not None and each.rank in case.ranks]
    finding = Finding(
        found.cause,
        found.certainty if not known or (found.certainty is Certainty.PROVEN and case.proven) else Certainty.LIKELY,
        f"{found.summary} That call was left out{passed}." if (passed := skip_path(ways)) else found.summary,
        fix=OUT_OF_CACHES if by_a_cache(ways) else found.fix,
        culprits=tuple(
            case.ranks[rank].culprit(the_only(ways) or _of_user(said.found, where)) for rank, where in culprits
        ),
        victims=found.victims,
        step=case.furthest_step([rank for rank, _ in culprits] or case.ranks),
        evidence=(*found.evidence, *evidence_of(ways)),
        details=found.details,
        waits=found.waits,
        awaited=tuple(case.ranks),
    )
    if said.found is not None and _later(case, said.found):
        return _in_another_order(finding, cause(said.found.without_way_past))
    return finding if known else without_cause(finding)


def _later(case: Case, found: Queued) -> bool:
    """Whether culprits that left a call out, or make it later, make it later: the source shows no way past its line."""
    left_out = found.left_out if found.without_way_past else None
    return left_out is not None and no_way_past(case, path(left_out.frames))


def _in_another_order(finding: Finding, order: Cause) -> Finding:
    """What was said of calls left out, of calls in another order: their line was reached, for another group."""
    said = (
        "both calls come from one line, past which the source shows no way: the order in which it comes to them differs"
    )
    return replace(
        finding, cause=order.id, certainty=Certainty.LIKELY, fix=order.fix, evidence=(*finding.evidence, said)
    )


def _of_user(found: Queued | None, where: Frame | None) -> Frame | None:
    """The place of a call, or where a package's line tells it from others the user's line that led there."""
    if where is None or origin(where.file) == "user":
        return where
    call = found.left_out if found is not None else None
    return user_frame(call.frames) if call is not None else None


def _ways_past(case: Case, found: Queued | None) -> tuple[Bypass, ...]:
    """The ways past the call that was left out; of a run of calls only where all made as many turns of the loop."""
    if found is None or found.left_out is None:
        return ()
    in_a_run = found.departure is not None and found.departure.run
    lines = path(found.left_out.frames)
    return past_lines(case, lines, found.times) if not in_a_run or _drew_alike(case) else ()


def _drew_alike(case: Case) -> bool:
    """All ranks drew as many batches from each of their loaders: they made as many turns of the loops over them."""
    drawn = {tuple((each.index, each.epoch, each.drawn) for each in view.loaders) for view in case}
    return len(drawn) == 1 and any(drawn)
