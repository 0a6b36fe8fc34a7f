"""A loader worker that stands in code of the data set."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.data_loading import Feeding, Worker
from hangwatch.facts.processes.data_waits import and_others, feedings, victims_of, worker_of
from hangwatch.facts.processes.own_code import is_far_too_long
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding


def loader_worker_blocked(case: Case) -> Finding | None:
    """A rank waits for a batch, and a worker stands in the user's code for it."""
    feeding = [each for each in feedings(case) if each.suspects]
    if not feeding:
        return None
    blamed = [(each, worker) for each in feeding for worker in each.suspects]
    ranks = [each.view.rank for each in feeding]
    each, worker = blamed[0]
    hung = case.stalled(ranks) and not any(_may_be_slow(each, worker) for each, worker in blamed)
    how = "is stuck" if hung else "still works" if worker.works else "is stuck" if case.stalled(ranks) else "is still"
    sample = f" on {worker.task}" if worker.task else ""
    return Finding(
        "loader-worker-blocked",
        Certainty.LIKELY,
        f"{worker_of(each, worker)} {how} in {worker.place}{sample}: {worker.how_stuck};"
        f" rank {each.view.rank} waits for its batch{words.at(each.view.where)}{and_others(case, ranks)}.",
        culprits=tuple(each.culprit(worker) for each, worker in blamed),
        victims=victims_of(case, ranks),
        step=each.view.step,
        evidence=tuple(sentence for each, worker in blamed[: words.SHOWN] for sentence in each.evidence(worker)),
        status=Status.HUNG if hung else Status.WAITING,
        awaited=tuple(ranks),
    )


def _may_be_slow(each: Feeding, worker: Worker) -> bool:
    """It works; where it only computes, that is given as much time as a rank's own code is, and no more."""
    computes_only = worker.computes and not worker.moves_data and worker.awaited is None
    return worker.works and not (computes_only and is_far_too_long(each.view))
