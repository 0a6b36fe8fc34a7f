"""Evidence in, verdict out: `judgement = diagnose(snapshot)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from hangwatch.facts.calls.histories import ranks_diff
from hangwatch.facts.case import Case
from hangwatch.facts.processes import remote_calls
from hangwatch.facts.processes.as_it_stood import as_it_stood, by_a_timeout, ended_while_it_stood
from hangwatch.facts.processes.stopped_later import before_the_stop, sentences, stopped_later
from hangwatch.facts.processes.store_waits import awaits_key, store_ports
from hangwatch.judge.as_they_stood import until_the_end
from hangwatch.judge.explained import best, may_explain
from hangwatch.judge.order import ORDER
from hangwatch.judge.verdict import judged, stage_of
from hangwatch.model import Certainty, Judgement, Snapshot, Stage, Status, Verdict
from hangwatch.ranks import device_waits
from hangwatch.rules.finding import Finding
from hangwatch.rules.undetermined import undetermined, without_cause

__all__ = ["ORDER", "Case", "Finding", "diagnose", "worth_confirming"]

Answer = TypeVar("Answer")
_LACKING = ("uneven-steps", "early-exit", "skipped-collective", "rank-local-decision")


def diagnose(snapshot: Snapshot) -> Judgement:
    """The verdict on a job that does not move, with its status and stage.

    Never raises on odd evidence: a rule that fails is left out, which is said in the verdict, and then nothing that
    rules behind it say is proven. That ranks were stopped when the job stood already is no cause where another is found
    without it.
    """
    later = stopped_later(snapshot)
    found = _diagnosed(before_the_stop(snapshot, later)) if later else None
    if found is not None and "undetermined" not in (found.verdict.cause, found.verdict.certainty):
        return replace(found, verdict=replace(found.verdict, details=(*found.verdict.details, *sentences(later))))
    return _diagnosed(snapshot)


def _diagnosed(snapshot: Snapshot) -> Judgement:
    case, faults = Case(snapshot), list[str]()
    finding = best(_findings(case, faults)) or undetermined(case)
    if finding.cause == "undetermined":
        finding = _while_it_waited(case, faults) or finding
    if faults and finding.certainty is Certainty.PROVEN:
        finding = replace(finding, certainty=Certainty.LIKELY)
    diff = asked(ranks_diff, case, faults) if stage_of(finding) is Stage.STEP else None
    judgement = _assembled(case, finding, faults)
    return replace(judgement, verdict=replace(judgement.verdict, diff=diff))


def _assembled(case: Case, finding: Finding, faults: list[str]) -> Judgement:
    """The judgement that follows from `finding`; if that fails, at least what the finding says."""

    def assembled(case: Case) -> Judgement:
        return judged(case, replace(finding, details=(*finding.details, *faults)))

    if (found := asked(assembled, case, faults)) is not None:
        return found
    stalled = any(rank.stalled for rank in case.snapshot.ranks)
    verdict = Verdict(
        finding.cause,
        Certainty.LIKELY if finding.certainty is Certainty.PROVEN else finding.certainty,
        finding.summary,
        fix=finding.fix,
        culprits=finding.culprits,
        evidence=finding.evidence,
        details=(*finding.details, *faults),
    )
    return Judgement(finding.status or (Status.HUNG if stalled else Status.WAITING), Stage.STEP, verdict)


def _while_it_waited(case: Case, faults: list[str]) -> Finding | None:
    """Of a job that a timeout ended: a timeout says nothing of why its ranks waited, and any cause may have been it.

    Nor does the signal of a launcher or a person. Ranks that still worked may then have been slow, and nothing else.
    """
    asked_to_end = ended_while_it_stood(case)
    if not (asked_to_end or by_a_timeout(case)) or (then := as_it_stood(case)) is None:
        return None
    found = best(_findings(then, faults))
    if found is None or found.cause == "undetermined":
        return None
    told = until_the_end(case, then, found)
    if not asked_to_end:
        return told
    told = replace(told, fix=found.fix)
    slow = any(map(then.works, then.views(found.expected)))
    return replace(without_cause(told), certainty=Certainty.UNDETERMINED) if slow else told


def _findings(case: Case, faults: list[str]) -> Iterator[Finding]:
    """What the rules find, in their order; behind the first finding only those are asked that may explain it."""
    first = ""
    for rule in ORDER:
        found = asked(rule, case, faults) if not first or may_explain(rule, first) else None
        if found is not None and not _keeps_none_waiting(case, found):
            first = first or found.cause
            yield found


def _keeps_none_waiting(case: Case, found: Finding) -> bool:
    """It blames ranks for calls that they lack, and all waits end at others, on their way in code of their own.

    Whatever the blamed ranks did not call, the wait is for what those do now.
    """
    if found.cause not in _LACKING:
        return False
    ranks = {*found.blamed, *found.expected}
    if not ranks or not case.ends_beside(ranks):
        return False
    ports = store_ports(case)
    return not any(awaits_key(view, ports) for view in case.views(case.awaited()))


def worth_confirming(snapshot: Snapshot) -> list[tuple[int, int]]:
    """(rank, pid) of ranks whose native frames may show a wait on their device, or for the answer of a remote call.

    One of each stack that would matter.
    """
    if any(rank.moved for rank in snapshot.ranks):
        return []
    case = Case(snapshot)
    nccl = any(head.uses_nccl for rank in snapshot.ranks for head in rank.collectives.heads)
    on_device = device_waits.worth_confirming(list(case), case.ledger) if nccl else []
    found = {view.rank: view for view in (*on_device, *remote_calls.may_ask(case))}
    return [(view.rank, view.pid) for view in found.values() if view.pid]


def asked(ask: Callable[[Case], Answer], case: Case, faults: list[str]) -> Answer | None:
    """What a rule finds. One that raises finds nothing, and leaves a sentence in `faults`."""
    try:
        return ask(case)
    except Exception as error:  # whatever it is, the verdicts of the others must not be lost
        name = f"{ask.__module__.rpartition('.')[2]}.{ask.__name__}"
        faults.append(f"The rule {name} of hangwatch failed ({error!r}); please report it, with this report.")
        return None
