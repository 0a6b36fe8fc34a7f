"""A loader worker that stands in code of the data set."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.data_loading import Feeding, Worker
from hangwatch.facts.processes.data_waits import and_others, feedings, victims_of, worker_of
from hangwatch.facts.processes.sleep import wakes_soon
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
    goes_on = any(worker.works or _wakes_soon(each, worker) for each, worker in blamed)
    how = "still works" if worker.works else "is still" if _wakes_soon(each, worker) else "is stuck"
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
        status=Status.WAITING if goes_on else Status.HUNG if case.stalled(ranks) else Status.WAITING,
        awaited=tuple(ranks),
    )


def _wakes_soon(each: Feeding, worker: Worker) -> bool:
    return wakes_soon(worker.facts, each.view.evidence)
