"""A loader worker that is gone."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.data_waits import feedings
from hangwatch.model import Certainty, Culprit, Stage
from hangwatch.ranks.view import RankView
from hangwatch.rules.failed_workers import KILLED, after_an_error, certainty_of, first_line, worker_error
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import name_of, origin

# What a rank raises when a worker is gone in the middle of handing over a batch, and where.
BROKEN_OFF = frozenset({"ConnectionResetError", "EOFError", "BrokenPipeError", "ConnectionRefusedError"})
TAKING_OVER = frozenset({"_try_get_data", "rebuild_storage_fd"})


def loader_worker_died(case: Case) -> Finding | None:
    """A worker process is gone: the rank's error names it, or the rank still waits for its batch."""
    reported = [(view, match) for view in case if (match := KILLED.search(worker_error(view))) is not None]
    if reported:
        view, match = reported[0]
        pids = [int(pid) for pid in re.findall(r"\d+", match[1])]
        return _died(case, view, pids, *_how(view, match))
    broken = next((view for view in case if _broke_off(view)), None)
    if broken is not None:
        said = (
            f"rank {broken.rank} raised: {first_line(worker_error(broken))}, while it took a batch over from a worker"
        )
        return _died(case, broken, [], "it ended while it handed a batch over", [said])
    for each in feedings(case):
        if each.dead:
            how = each.dead[0].ended
            sentences = [f"worker {worker.name} of rank {each.view.rank} is {worker.life}" for worker in each.dead]
            return _died(case, each.view, [worker.pid for worker in each.dead], how, sentences)
    return None


def _how(view: RankView, match: re.Match[str]) -> tuple[str, list[str]]:
    """How the worker ended, and the errors that say so.

    torch itself may catch the error that names the signal, and raise another one, that the worker exited.
    """
    said = [f"rank {view.rank} raised: {first_line(worker_error(view))}"]
    if match[2]:
        return f"killed by signal {match[2].strip()}", said
    for error in view.reading.caught if view.reading is not None else ():
        found = KILLED.search(error.message)
        if found is not None and found[2] and found[1] == match[1]:
            return f"killed by signal {found[2].strip()}", [f"rank {view.rank} met: {first_line(error.message)}", *said]
    return "it exited unexpectedly", said


def _broke_off(view: RankView) -> bool:
    """Its error says that the other end is gone, and that end is a loader worker."""
    error = view.exception
    if error is None or error.type not in BROKEN_OFF or not worker_error(view):
        return False
    functions = {name_of(frame.function) for frame in error.frames if origin(frame.file) == "torch"}
    return bool(functions & TAKING_OVER)


def _died(case: Case, view: RankView, pids: list[int], how: str, evidence: list[str]) -> Finding:
    waiting = [rank for rank in case.blocked if rank != view.rank]
    kills = sum(node.oom_kills or 0 for node in case.snapshot.nodes)
    memory = ", out of memory" if kills and "kill" in how.lower() else ""
    if kills:
        evidence = [*evidence, f"{words.plural(kills, 'out-of-memory kill')} in the job's cgroup"]
    named = f" ({words.listed(f'pid {pid}' for pid in pids[: words.SHOWN])})" if pids else ""
    tail = f"; {case.wait_words(waiting)} for rank {view.rank}" if waiting else ""
    return Finding(
        "loader-worker-died",
        certainty_of(view) if worker_error(view) else Certainty.PROVEN,
        f"A loader worker of rank {view.rank} died{named}: {how}{memory}{tail}.",
        culprits=tuple(Culprit(view.rank, pid, view.evidence.host, process="loader-worker") for pid in pids or (None,)),
        victims=(view.rank, *waiting),
        step=view.step,
        evidence=tuple(evidence),
        status=after_an_error(case, [view]),
        stage=Stage.DATA,
    )
