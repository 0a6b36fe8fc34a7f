"""The holder of a lock waits for the very process that waits for the lock."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.processes.locks import KERNEL_CALLS, LockWait, holder_name, lock_name
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding


def deadlock(case: Case, waits: list[LockWait], closed: list[LockWait]) -> Finding:
    """The holder of a lock waits, itself or by a collective, for the process that waits for the lock."""
    first = closed[0]
    holders = [case.ranks[each.holder] for each in closed if each.holder in case.ranks]
    paths = {each.lock.path for each in closed}
    waiting = sorted({each.view.rank for each in waits if each.lock.path in paths})
    proven = all(_surely(case, each) for each in closed)
    return Finding(
        "lock-held-by-process",
        Certainty.PROVEN if proven else Certainty.LIKELY,
        f"{_told(case, waits, closed)}: a deadlock.",
        fix="let go of the lock before the collective: what is inside of a lock must not wait for those outside of it"
        if any(view.rank in case.blocked for view in holders)
        else "take the locks in one order, and let go of a lock before waiting for a process that needs it",
        culprits=tuple(view.culprit() for view in {view.rank: view for view in holders}.values()),
        victims=tuple(rank for rank in case.ranks if rank not in {view.rank for view in holders}),
        step=holders[0].step if holders else first.view.step,
        evidence=tuple(
            dict.fromkeys(sentence for each in waits if each.view.rank in waiting for sentence in _in_circle(each))
        ),
        status=Status.HUNG if proven or case.stalled({each.view.rank for each in closed}) else None,
        awaited=tuple(view.rank for view in holders),
        dead="each lock's holder waits for a process that waits for the lock" if proven else "",
        held=tuple(sorted({*(each.view.rank for each in closed), *(view.rank for view in holders)})) if proven else (),
    )


def _surely(case: Case, wait: LockWait) -> bool:
    """The wait ends with the lock only, and the holder surely waits for it, directly or in a collective."""
    holder = case.ranks.get(wait.holder) if wait.holder is not None else None
    if holder is None or not (wait.in_kernel and wait.steady):
        return False
    entry = case.blocked.get(holder.rank)
    return entry.certain if entry is not None else _waits_for_lock(holder, wait)


def _waits_for_lock(holder: RankView, wait: LockWait) -> bool:
    """The holder is in the kernel's wait for another lock, or for the very child that waits for this one."""
    process = holder.evidence.process
    if process is None or not holder.steady:
        return False
    child = wait.child is not None and process.waits_for == wait.child.pid
    return child or process.system_call in KERNEL_CALLS


def _told(case: Case, waits: list[LockWait], closed: list[LockWait]) -> str:
    parts = []
    for each in closed:
        entry = case.blocked.get(each.holder) if each.holder is not None else None
        does = f" and waits in {call_words(entry)}{words.at(entry.where)}" if entry is not None else ""
        alike = {other.view.rank for other in waits if _is_alike(other, each)}
        name = case.name(sorted(alike)) if each.child is None else each.name
        wait = words.verb(
            len(alike), *(("tries to get", "try to get") if each.lock.inferred else ("waits for", "wait for"))
        )
        parts.append(
            f"rank {each.holder} holds {lock_name(each.lock)}{does}, and {name} {wait} it{words.at(each.where)}"
        )
    return words.capital("; ".join(dict.fromkeys(parts)))


def _is_alike(one: LockWait, other: LockWait) -> bool:
    """They wait for one lock at one line."""
    if one is other:
        return True
    return one.child is other.child is None and (one.lock.path, one.where) == (other.lock.path, other.where)


def _in_circle(wait: LockWait) -> list[str]:
    how = "sleeps with that file open" if wait.lock.inferred else "waits for that lock"
    return [f"{holder_name(wait.lock)} holds {wait.lock.path}", f"{wait.name} {how}{words.at(wait.where)}"]
