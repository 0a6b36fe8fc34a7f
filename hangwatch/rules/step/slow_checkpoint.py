"""The others wait for ranks that read or write a checkpoint."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.own_code import awaited_views, saving_thread, status_of
from hangwatch.facts.processes.pipes import readers_of
from hangwatch.model import Certainty, OpenFile, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

SAVING_PATIENCE = 5  # times the usual patience, as the setting stall_after says
FIFO = "fifo"
TRICKLE = 1024  # bytes between two samples


def slow_checkpoint(case: Case) -> Finding | None:
    """The others wait for ranks that read or write a checkpoint."""
    threads = {view.rank: thread for view in awaited_views(case) if (thread := saving_thread(view)) is not None}
    savers = case.views(threads)
    if not savers:
        return None
    culprits = [view.rank for view in savers]
    victims = case.victims(culprits)
    view, thread = savers[0], threads[savers[0].rank]
    file = view.evidence.process.blocked_on if view.evidence.process is not None else None
    readers = [pid for pid in readers_of(case, file.path) if pid != view.pid] if file is not None else []
    bytes_moved = sum(
        other.evidence.process.io_delta_bytes or 0 for other in savers if other.evidence.process is not None
    )
    trickle = max(map(_written, savers))
    moving = any(other.works for other in savers) or trickle > TRICKLE
    amount = f"{bytes_moved >> 20} MiB" if bytes_moved >> 20 else f"{trickle >> 10} KiB"
    state = f", still moving data ({amount} in the last second)" if moving else ", not moving any data"
    if all(other.evidence.process is None for other in savers):
        state = ""  # nothing tells of its bytes
    return Finding(
        "slow-checkpoint",
        Certainty.LIKELY,
        f"{case.say(culprits, 'is', 'are', capital=True)} reading or writing a checkpoint"
        f"{_target(file, readers)}{words.at(thread.where or view.where)}{state}; {case.wait_words(victims)}.",
        fix="" if moving else f"look at {_cause(file, readers)}",
        culprits=tuple(other.culprit(threads[other.rank].where) for other in savers),
        victims=victims,
        step=view.step,
        evidence=(f"rank {view.rank} is in {words.place(thread.frame)}{state}",),
        status=_saving(case, savers),
    )


def _target(file: OpenFile | None, readers: list[int]) -> str:
    """The file, or the process at the other end of the pipe that takes the checkpoint."""
    if file is None:
        return ""
    if readers:
        return f" through a pipe that {words.listed(f'pid {pid}' for pid in readers[: words.SHOWN])} should read"
    kind = "a named pipe that no process reads" if file.filesystem == FIFO else file.filesystem
    return f" {file.path}" + (f" ({kind})" if kind else "")


def _cause(file: OpenFile | None, readers: list[int]) -> str:
    if readers:
        return f"what pid {readers[0]} waits for"
    if file is not None and file.filesystem == FIFO:
        return "why there is a named pipe at that path, and what should read it; a checkpoint is written to a file"
    return "the file system that the checkpoint is on"


def _saving(case: Case, savers: list[RankView]) -> Status:
    """Storage that is slow looks stuck between two writes: only a call that the kernel blocks counts at once."""
    blocked = any(view.evidence.process is not None and view.evidence.process.blocked_on is not None for view in savers)
    much = all(view.evidence.still_s > SAVING_PATIENCE * view.evidence.patience_s for view in savers)
    if any(view.works or _written(view) > TRICKLE for view in savers):
        return Status.WAITING
    return status_of(case, savers) if blocked or much else Status.WAITING


def _written(view: RankView) -> int:
    process = view.evidence.process
    return (process.written_delta_bytes or 0) if process is not None else 0
