"""A rank, or a process of it, waits for a lock that another living process holds."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.processes.child import Child
from hangwatch.facts.processes.kept_waiting import kept_waiting, others_awaited, stage_of_wait
from hangwatch.facts.processes.locks import (
    LockWait,
    belongs,
    circle,
    holder_name,
    holds,
    lock_name,
    lock_waits,
    on_network,
    owner_works,
)
from hangwatch.model import Certainty, Culprit, Frame, LockOwner, ProcessEvidence, Status
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.lock_held_by_process.deadlock import deadlock


def lock_held_by_process(case: Case) -> Finding | None:
    """The ranks that are awaited wait for a lock, and a living process has it."""
    waits = [each for each in lock_waits(case) if not each.view.over]
    closed = circle(case, waits)
    if closed:
        return deadlock(case, waits, closed)
    awaited = case.awaited()
    found = [each for each in waits if not case.blocked or each.view.rank in awaited]
    known = {each.view.rank for each in found} | {
        each.owner.rank for each in found if each.owner is not None and each.owner.rank is not None
    }
    if not found or others_awaited(case, known):
        return None
    return _held(case, found)


# ------------------------------------------------------------------------------------------ a lock, and its holder


def _held(case: Case, waits: list[LockWait]) -> Finding:
    mine = [each for each in waits if each.by_itself] or waits  # the others wait for one that waits for itself
    first = mine[0]
    alike = [each for each in waits if each.lock.path == first.lock.path]
    ranks = sorted({each.view.rank for each in waits})
    others = kept_waiting(case, ranks)
    status = _status(case, waits)
    sure = all(each.in_kernel and each.steady and each.owner is not None for each in waits)
    tail = f"; {case.wait_words(others)} for {words.ranks(ranks)}{words.at(case.usual_place(others))}" if others else ""
    who = sorted({each.view.rank for each in mine})
    names = case.name(who, capital=True) if first.child is None else words.capital(first.name)
    one = len(who) == 1 or first.child is not None
    too = [rank for rank in ranks if rank not in who]
    besides = f", and {case.wait_words(too)} for it too" if too else ""
    return Finding(
        "lock-held-by-process",
        Certainty.PROVEN if sure and status is Status.HUNG else Certainty.LIKELY,
        f"{names} {'waits' if one else 'wait'} for {lock_name(first.lock)}{words.at(first.where)},"
        f" {_held_by(first)}{'' if first.by_itself else _holder_stands(case, first)}{besides}{tail}.",
        fix=_fix(first),
        culprits=_culprits(case, alike, all_wait=not others),
        victims=tuple(sorted({*others, *ranks})),
        step=first.view.step,
        evidence=_evidence_of(case, waits[: words.SHOWN]),
        status=status,
        stage=stage_of_wait(case, ranks),
        awaited=tuple(ranks),
    )


def _held_by(wait: LockWait) -> str:
    return "which it holds itself, by another open file" if wait.by_itself else holds(wait.lock)


def _status(case: Case, waits: list[LockWait]) -> Status:
    """A holder that works may let go of it; else patience decides, with a rank that holds it too."""
    if any(owner_works(case, each.owner) for each in waits):
        return Status.WAITING
    asked = {each.view.rank for each in waits} | {each.holder for each in waits if each.holder is not None}
    return Status.HUNG if case.stalled(asked & case.ranks.keys()) else Status.WAITING


def _culprits(case: Case, waits: list[LockWait], *, all_wait: bool) -> tuple[Culprit, ...]:
    """The holder. Where it is no process of the job, the ranks that wait are named with their line too."""
    first = waits[0]
    owner = first.owner
    host = first.view.evidence.host
    inside = owner is not None and owner.rank is not None
    named = (
        () if inside or all_wait else tuple({each.view.rank: each.view.culprit(each.where) for each in waits}.values())
    )
    if owner is None:
        return named
    own = first.where if owner.rank == first.view.rank else None  # a rank's own child keeps it waiting at this line
    return (*named, _culprit(case, owner, host, own))


def _culprit(case: Case, owner: LockOwner, host: str, waits_at: Frame | None) -> Culprit:
    if owner.role == "rank" and owner.rank in case.ranks:
        return case.ranks[owner.rank].culprit()
    process = {"loader-worker": "loader-worker", "launcher": "launcher"}.get(owner.role, "other")
    return Culprit(owner.rank, owner.pid, host, process=process, where=_line_of(case, owner) or waits_at)


def _line_of(case: Case, owner: LockOwner) -> Frame | None:
    """Where a process of the job stands that holds the lock."""
    found = next((each for each in _processes(case, owner) if each.facts.pid == owner.pid), None)
    return Child(found).where if found is not None else None


def _processes(case: Case, owner: LockOwner) -> tuple[ProcessEvidence, ...]:
    view = case.ranks.get(owner.rank) if owner.rank is not None else None
    return (*view.evidence.workers, *view.evidence.children) if view is not None else ()


def _holder_stands(case: Case, wait: LockWait) -> str:
    """What a rank of the job does with the lock."""
    view = case.ranks.get(wait.holder) if wait.holder is not None else None
    if view is None:
        return ""
    entry = case.blocked.get(view.rank)
    if entry is not None:
        return f" while it waits in {call_words(entry)}{words.at(entry.where)}"
    return f" while it stands at {words.place(view.where)}" if view.where is not None else ""


def _evidence_of(case: Case, waits: list[LockWait]) -> tuple[str, ...]:
    """Each wait, and each holder once."""
    owners = {each.owner.pid: each.owner for each in waits if each.owner is not None}
    return (
        *dict.fromkeys(sentence for each in waits for sentence in _evidence(case, each)),
        *(sentence for owner in owners.values() for sentence in _owner_evidence(case, owner)),
    )


def _evidence(case: Case, wait: LockWait) -> list[str]:
    lock, owner = wait.lock, wait.owner
    how = "sleeps with that file open, and tries for it again and again" if lock.inferred else "waits for that lock"
    found = [f"{wait.name} {how}{words.at(wait.where)}"]
    if wait.in_kernel and wait.facts is not None:
        found.append(f"it is in the system call {wait.facts.system_call}, which returns when the lock is free")
    held = f"{holder_name(lock)} holds {lock.path}"
    found.append(f"{held}, which another process has locked for writing" if owner is None and lock.inferred else held)
    if on_network(lock):
        found.append(f"{lock.path} lies on {lock.filesystem}: processes of other machines can hold it as well")
    if wait.steady:
        found.append(f"two samples of {wait.name} agree")
    return found


def _owner_evidence(case: Case, owner: LockOwner) -> list[str]:
    found = []
    if owner.started_at is not None:
        age = words.duration(case.snapshot.taken_at - owner.started_at)
        found.append(f"pid {owner.pid} was started {age} ago and is {belongs(owner)}")
    if owner.cpu_delta_s is not None:
        found.append(f"pid {owner.pid} used {owner.cpu_delta_s:.2f} s of processor time between two samples")
    line = _line_of(case, owner)
    if line is not None:
        found.append(f"pid {owner.pid} stands at {words.place(line)}")
    return found


def _fix(wait: LockWait) -> str:
    owner = wait.owner
    if wait.by_itself:
        return "take that lock once: let go of it before it is taken again, or hand on the one that is held"
    if owner is not None and owner.role == "leftover":
        return f"kill {owner.pid}, which is left over from an earlier run; give the lock a timeout"
    if owner is not None and owner.role == "stranger":
        return f"wait for pid {owner.pid} or end it, or give this job a path of its own; give the lock a timeout"
    return ""
