"""No file descriptor is left for a batch."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.data_loading import Feeding, Worker
from hangwatch.facts.processes.data_waits import feedings
from hangwatch.model import Certainty, ProcessFacts
from hangwatch.rules.failed_workers import certainty_of, resource, worker_error
from hangwatch.rules.finding import Finding

NO_DESCRIPTORS = re.compile(r"too many open files|received \d+ items of ancdata|EMFILE|errno: ?24\b", re.IGNORECASE)
LOW_LIMIT = 4096  # of open files: with many workers and many tensors to a batch that is not much
NEAR = 0.95  # of the limit of open descriptors


def file_descriptors_exhausted(case: Case) -> Finding | None:
    """A rank or one of its workers is at its limit of open files."""
    hit = [view for view in case if NO_DESCRIPTORS.search(worker_error(view))]
    near = [(each.view, facts) for each in feedings(case) for facts in each.processes if _is_near(facts)]
    lost = [each for each in feedings(case) if each.lost_batch and any(_is_low(worker) for worker in each.workers)]
    if lost and not hit and not near:
        return _lost_for_want_of_descriptors(case, lost)
    if not hit and not near:
        return None
    counts = [
        f"pid {facts.pid} of rank {view.rank} has {facts.descriptors:,} of {facts.descriptor_limit:,} descriptors open"
        for view, facts in near[: words.SHOWN]
    ]
    views = hit or list({view.rank: view for view, _ in near}.values())
    return resource(
        case,
        "file-descriptors-exhausted",
        views,
        "no file descriptors are left, so that workers cannot pass their batches on",
        certainty_of(hit[0]) if hit else Certainty.LIKELY,
        counts,
    )


def _is_low(worker: Worker) -> bool:
    """A low limit, and the thread that hands descriptors on is gone."""
    limit = worker.facts.descriptor_limit
    return limit is not None and limit <= LOW_LIMIT and worker.cannot_serve


def _lost_for_want_of_descriptors(case: Case, lost: list[Feeding]) -> Finding:
    hit = [(each, worker) for each in lost for worker in each.workers if _is_low(worker)]
    sentences = [
        f"worker {worker.name} of rank {each.view.rank} (pid {worker.pid}) may open {worker.facts.descriptor_limit:,}"
        " files, and its thread that hands descriptors on has ended"
        for each, worker in hit[: words.SHOWN]
    ]
    sentences.append("all workers wait for work, although a batch is awaited: it was lost on its way")
    what = "a batch was lost on its way, as happens when a worker has no file descriptors left"
    views = [each.view for each in lost]
    return resource(case, "file-descriptors-exhausted", views, what, Certainty.LIKELY, sentences)


def _is_near(facts: ProcessFacts) -> bool:
    count, limit = facts.descriptors, facts.descriptor_limit
    return count is not None and limit is not None and count >= NEAR * limit
