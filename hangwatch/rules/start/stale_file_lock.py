"""Lock files: the process that made one is dead, and no other process will ever remove it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.data_waits import victims_of
from hangwatch.facts.processes.locks import on_network, stale_lock
from hangwatch.facts.processes.polled import left_over, looks_for, on_shared
from hangwatch.model import Certainty, Culprit, Stage, Status
from hangwatch.rules.finding import Finding

FRESH_S = 5.0  # seconds; the process that made a lock may be about to open or to remove it


def left_over_file(case: Case) -> Finding | None:
    """A rank waits until a file is removed that was there before the job, and that no living process here uses."""
    waiting = [(view, file) for view in case if (file := left_over(view)) is not None]
    if not waiting or not all(view.steady for view, _ in waiting):
        return None
    view, file = waiting[0]
    ranks = [each.rank for each, _ in waiting]
    loop = view.now.loop
    asked = f" (`{loop.ways_out[0].text}`)" if loop is not None and len(loop.ways_out) == 1 else ""
    elsewhere = on_shared(file)
    return Finding(
        "stale-file-lock",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} {words.verb(len(ranks), 'waits', 'wait')} until {file.path} is"
        f" removed{words.at(view.where)}{asked}: the file was there before this job, and no living process"
        f" {'of this machine ' if elsewhere else ''}has it open.",
        fix=f"rm {file.path}, once nothing uses it any more; take a lock that ends with its process (fcntl.flock, or"
        " filelock's FileLock) instead of one that is a file's existence",
        victims=victims_of(case, ranks),
        step=view.step,
        evidence=tuple(looks_for(each) for each, _ in waiting[: words.SHOWN]),
        stage=Stage.START,
        awaited=tuple(ranks),
    )


def stale_file_lock(case: Case) -> Finding | None:
    """A rank polls for a lock file that no living process holds."""
    waiting = [(view, lock) for view in case if (lock := stale_lock(view)) is not None]
    if not waiting:
        return None
    view, lock = waiting[0]
    ranks = [each.rank for each, _ in waiting]
    # A pid in a text may be one of another container or machine, whose process lives: then patience decides.
    settled = all(each.steady and found.age_s > FRESH_S and not found.owner_pid for each, found in waiting)
    shared = on_network(lock)
    here = " of this machine" if shared else ""
    owner = f"pid {lock.owner_pid}, which is dead" if lock.owner_pid else "no living process"
    owners = {found.owner_pid for _, found in waiting if found.owner_pid}
    return Finding(
        "stale-file-lock",
        Certainty.PROVEN if settled and not shared else Certainty.LIKELY,
        f"{case.say(ranks, 'waits', 'wait', capital=True)} for the lock file {lock.path},"
        f" which belongs to {owner}{words.at(view.where)}.",
        fix=f"rm {lock.path}" + (", once no process on another machine holds it" if shared else ""),
        culprits=tuple(Culprit(None, pid, process="other") for pid in sorted(owners)),
        victims=victims_of(case, ranks),
        step=view.step,
        evidence=(
            f"{lock.path} is {words.duration(lock.age_s)} old, and no living process{here} has it open or locked",
            *((f"it lies on {lock.filesystem}: a process of another machine can hold it as well",) if shared else ()),
            *(f"rank {each.rank} (pid {each.pid}) polls for it{words.at(each.main.frame)}" for each, _ in waiting[:8]),
        ),
        status=Status.HUNG if settled else None,
        stage=Stage.START,
        awaited=tuple(ranks),
    )
