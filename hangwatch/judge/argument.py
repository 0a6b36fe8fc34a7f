"""The first of the two answers: is the job dead? With the argument as sentences, for a person to check.

`proven` means that no rank that is left can ever move again: by the wait-for graph (`hangwatch.proof.graph`), or by a
fact of the system. Everything else that is called hung is `likely`: patience has run out, or some ranks are lost and
others may still move. The cause and the culprit are another question, and nothing here answers it.
"""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.processes.own_code import COMPUTING
from hangwatch.facts.processes.standstill import standstill
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

MOST_WAITS = 6  # waits that are named; others are counted


def hang_certainty(case: Case, status: Status, finding: Finding) -> tuple[Certainty | None, tuple[str, ...]]:
    """The certainty that the job hangs, None where it is not called hung, and why."""
    if status not in (Status.HUNG, Status.LINGERING):
        return None, ()
    if case.proven:
        return Certainty.PROVEN, argument(case)
    if finding.dead and case.lost_with(finding.held):
        return Certainty.PROVEN, (finding.dead,)
    return Certainty.LIKELY, lost(case) if case.deadlocked else stands(case) or patience(case)


def argument(case: Case) -> tuple[str, ...]:
    """The proof: which rank waits for which, and what was checked."""
    shared: dict[int, list[int]] = {}
    for rank in sorted(case.deadlocked):
        shared.setdefault(id(case.blocked[rank].need), []).append(rank)
    waits = []
    for ranks in list(shared.values())[:MOST_WAITS]:
        entry = case.blocked[ranks[0]]
        need = entry.need
        missing = () if need is None else sorted({*need.absent, *need.never})
        any_of = "one of " if need is not None and not need.every and len(missing) > 1 else ""
        waits.append(
            f"{case.wait_words(ranks)} in {call_words(entry)}{words.at(entry.where)}, which cannot complete without"
            f" {any_of}{case.name(missing)}"
        )
    if len(shared) > MOST_WAITS:
        waits.append(f"{len(shared) - MOST_WAITS} more waits are alike")
    gone = sorted(case.gone)
    ended = (f"{case.say(gone, 'has', 'have')} ended or cannot run",) if gone else ()
    return (
        *waits,
        *ended,
        "two samples of every waiting rank's stack agree, and none of its counters moved between them",
        "no other thread of these ranks runs the user's code or is in a collective, or can issue one again",
    )


def lost(case: Case) -> tuple[str, ...]:
    """Some ranks can never go on, and of others that is not certain."""
    able = [view.rank for view in case if view.rank not in case.deadlocked | case.gone and not view.over]
    return (
        f"{case.name(sorted(case.deadlocked), capital=True)} can never go on",
        f"{case.name(able)} may still move by {words.verb(len(able), 'itself', 'themselves')}, or by another thread",
    )


def stands(case: Case) -> tuple[str, ...]:
    """Every host waits, and the devices' queues show why none goes on."""
    why = standstill(case)
    if not why:
        return ()
    still = min(view.evidence.still_s for view in case if not (view.dead or view.over))
    return why, f"every host waits for its device, and no counter has moved for {words.duration(still)}"


def patience(case: Case) -> tuple[str, ...]:
    """Why an unproven hang is reported: how long nothing has moved."""
    still = [view for view in case if view.evidence.stalled and not view.dead]
    if not still:
        return ()
    least = min(view.evidence.still_s for view in still)
    limit = words.duration(max(map(_limit_s, still)))
    ranks = case.name([view.rank for view in still])
    computing = [view.rank for view in still if _limit_s(view) > view.evidence.patience_s]
    since = f", as {case.say(computing, 'computes', 'compute')}" if computing else ""
    return (f"no counter of {ranks} has moved for {words.duration(least)}: after {limit} that is called hung{since}",)


def _limit_s(view: RankView) -> float:
    """After how many seconds of stillness it counts as hung: code of its own is given more."""
    patience_s = view.evidence.patience_s
    return COMPUTING * patience_s if view.works and view.evidence.still_s >= COMPUTING * patience_s else patience_s
