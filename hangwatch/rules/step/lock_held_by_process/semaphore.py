"""A lock of multiprocessing that its holder does not release: it waits for ranks that wait for the lock."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.processes.semaphores import SemaphoreWait, semaphore_wait
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def semaphore_held(case: Case) -> Finding | None:
    """Ranks wait for a lock: another is in a collective within its block, or no rank runs that could release it."""
    found = semaphore_wait(case)
    if found is None:
        return None
    if found.inside:
        return _inside_its_block(case, found)
    return _never_released(case, found) if len(found.waiting) > 1 else None


def _inside_its_block(case: Case, found: SemaphoreWait) -> Finding:
    holder = case.ranks[found.inside[0]]
    entry = case.blocked[holder.rank]
    block = f"the block of the lock at {words.place(found.where)}"
    return Finding(
        "lock-held-by-process",
        Certainty.LIKELY,
        f"{words.ranks(found.inside, capital=True)} {words.verb(len(found.inside), 'waits', 'wait')} in"
        f" {call_words(entry)}{words.at(entry.where)} within {block}, and {case.wait_words(found.waiting)} for that"
        " lock: a deadlock.",
        fix="call collectives outside of the lock, or let only one rank take it",
        culprits=case.culprits(found.inside),
        victims=found.waiting,
        step=holder.step,
        evidence=(
            *_sleeping(case, found),
            f"the source shows {words.place(entry.where)}, where {words.ranks(found.inside)} waits, in {block}",
        ),
        awaited=found.waiting,
    )


def _never_released(case: Case, found: SemaphoreWait) -> Finding:
    others = [rank for rank in case.blocked if rank not in found.waiting]
    names = case.name(found.waiting, capital=True)
    tail = f"; {case.wait_words(others)} for them{words.at(case.usual_place(others))}" if others else ""
    return Finding(
        "lock-held-by-process",
        Certainty.LIKELY,
        f"{names} wait for a lock between processes{words.at(found.where)}, and no rank runs that could release it: a"
        f" rank took it and did not release it, or another process holds it{tail}.",
        fix="take the lock in a `with` statement: it is released on every way out, an error or a `return` too",
        victims=(*found.waiting, *others),
        step=case.furthest_step(found.waiting),
        evidence=_sleeping(case, found),
        awaited=found.waiting,
    )


def _sleeping(case: Case, found: SemaphoreWait) -> tuple[str, ...]:
    names, sleep = case.name(found.waiting), words.verb(len(found.waiting), "sleeps", "sleep")
    return (f"{names} {sleep} in acquire of a lock of multiprocessing{words.at(found.where)}, in both samples",)
