"""A loader worker that is stopped, or sleeps uninterruptibly."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.data_waits import and_others, feedings, victims_of, worker_of
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding

WORKER_FROZEN_S = 15.5  # seconds; as for a rank, and until its batches that were ready are used up


def loader_worker_frozen(case: Case) -> Finding | None:
    """A worker is stopped, or sleeps uninterruptibly in the kernel, while its rank waits for a batch."""
    found = [(each, worker) for each in feedings(case) for worker in each.frozen]
    if not found:
        return None
    stopped = all(worker.state in "Tt" for _, worker in found)
    each, worker = found[0]
    ranks = sorted({each.view.rank for each, _ in found})
    return Finding(
        "loader-worker-frozen",
        Certainty.PROVEN if stopped else Certainty.LIKELY,
        f"{worker_of(each, worker)} {worker.how_frozen}{words.at(worker.where)};"
        f" rank {each.view.rank} waits for its batch{words.at(each.view.where)}{and_others(case, ranks)}.",
        fix=f"kill -CONT {' '.join(str(worker.pid) for _, worker in found[:8])}" if stopped else "",
        culprits=tuple(each.culprit(worker) for each, worker in found),
        victims=victims_of(case, ranks),
        step=each.view.step,
        evidence=tuple(sentence for each, worker in found[: words.SHOWN] for sentence in each.evidence(worker)),
        status=None if not stopped else Status.HUNG if case.still(ranks, WORKER_FROZEN_S) else Status.WAITING,
        dead=f"pid {worker.pid} cannot run until continued, and its batch is awaited" if stopped else "",
        held=tuple(ranks),
        awaited=tuple(ranks),
    )
