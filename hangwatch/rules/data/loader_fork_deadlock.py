"""A loader worker that was forked while a thread of its parent held a lock."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import thread_of_parent
from hangwatch.facts.processes.data_loading import Feeding
from hangwatch.facts.processes.data_waits import and_others, feedings, victims_of
from hangwatch.facts.processes.locks import takes_a_lock
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding

_FIX_OF_A_LOCK = (
    "make that lock anew in each worker (worker_init_fn), or begin with the workers before a thread takes it, or hold"
    " it while they are forked (os.register_at_fork)"
)


def loader_fork_deadlock(case: Case) -> Finding | None:
    """All workers of a rank stand in a lock from before the fork: no thread of their process holds it."""
    found = [each for each in feedings(case) if each.inherited]
    if not found:
        return None
    proven = all(worker.alone for each in found for worker in each.busy)
    ranks = [each.view.rank for each in found]
    alike = len(found) == len([view for view in case if not view.dead])
    first, worker = found[0], found[0].busy[0]
    workers = [(each, worker) for each in found for worker in each.busy]
    of_program = all(takes_a_lock(case, each.where) for _, each in workers)
    what = "a lock" if of_program else "a lock or a thread pool"
    holder = thread_of_parent(first.view)
    by = f" (its thread {holder.name!r} may hold it)" if of_program and holder is not None and len(ranks) == 1 else ""
    return Finding(
        "loader-fork-deadlock",
        Certainty.PROVEN if proven else Certainty.LIKELY,
        f"{words.plural(len(workers), 'loader worker')} of {case.name(ranks)}"
        f" {words.verb(len(workers), 'waits', 'wait')} for {what} that"
        f" {words.verb(len(workers), 'its', 'their')} parent held at the fork{by}, and no thread of"
        f" {words.verb(len(workers), 'it', 'them')} can release it{words.at(worker.where)}{and_others(case, ranks)}.",
        fix=_FIX_OF_A_LOCK if of_program else "",
        culprits=() if alike else tuple(each.culprit(worker) for each, worker in workers),
        victims=victims_of(case, ranks),
        step=first.view.step,
        evidence=tuple(sentence for each, worker in workers[: words.SHOWN] for sentence in each.evidence(worker))
        + tuple(_holder(each) for each in found[:1] if _holder(each)),
        status=Status.HUNG if proven else None,
        dead="every thread of these workers waits, without a timeout, for another of its own process" if proven else "",
        held=tuple(ranks),
        awaited=tuple(ranks),
    )


def _holder(feeding: Feeding) -> str:
    """A thread of the rank that may hold the lock: one that runs the program's code in the parent."""
    thread = thread_of_parent(feeding.view)
    return f"rank {feeding.view.rank} has thread {thread.name!r}, which the workers have not" if thread else ""
