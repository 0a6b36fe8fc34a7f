"""A process of a rank that is stopped, or sleeps uninterruptibly."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

_DEEP_S = 2.0  # seconds; disks and drivers let a process sleep uninterruptibly for less
FROZEN_S = 14.9  # seconds, 14 of them to our look; a debugger or a limiter of processor time may let it go on


def rank_frozen(case: Case) -> Finding | None:
    """A rank's process is stopped, or sleeps in the kernel where nothing can wake it."""
    stopped = [view for view in case if view.stopped]
    deep = [view for view in case if view.state == "D" and not view.works and view.evidence.still_s > _DEEP_S]
    frozen = stopped or deep
    if not frozen or (not stopped and not any(view.rank in case.awaited() for view in deep)):
        return None
    culprits = [view.rank for view in frozen]
    return Finding(
        "rank-frozen",
        Certainty.PROVEN if stopped else Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} {_how_frozen(frozen[0])}{words.at(frozen[0].where)}"
        f"{_waiting_for(case, culprits)}.",
        fix=_thaw(frozen),
        culprits=case.culprits(culprits),
        step=frozen[0].step,
        evidence=tuple(_frozen_evidence(view) for view in frozen[: words.SHOWN]),
        status=_status(case, culprits) if stopped else None,
        dead=f"{case.name(culprits)} cannot run until continued: the process is stopped" if stopped else "",
        held=tuple(culprits),
    )


def _status(case: Case, stopped: list[int]) -> Status:
    """Hung where the stop lasts; a job whose ranks are all stopped is suspended, and its patience has to run out."""
    suspended = all(view.rank in stopped for view in case if not view.dead)
    lasts = case.stalled(stopped) if suspended else any(map(_stays_stopped, case.views(stopped)))
    return Status.HUNG if lasts else Status.WAITING


def _stays_stopped(view: RankView) -> bool:
    """Its ticker, which stops with it, has been silent for as long: a profiler stops a rank for a moment."""
    evidence = view.evidence
    silent_s = evidence.still_s if view.silent_s is None else view.silent_s
    least_s = min(FROZEN_S, evidence.patience_s) if evidence.stalled else FROZEN_S
    return min(evidence.still_s, silent_s) > least_s


def _how_frozen(view: RankView) -> str:
    if view.state == "t":
        return f"(pid {view.pid}) is stopped by a debugger (state t)"
    if view.state == "T":
        return f"(pid {view.pid}) is stopped (state T: SIGSTOP, Ctrl-Z or a freezer)"
    process = view.evidence.process
    target = f" on {process.blocked_on.path}" if process is not None and process.blocked_on is not None else ""
    return f"(pid {view.pid}) sleeps uninterruptibly in the kernel (state D){target}"


def _thaw(frozen: list[RankView]) -> str:
    pids = " ".join(str(view.pid) for view in frozen[: words.SHOWN])
    return f"kill -CONT {pids}" if frozen[0].stopped else "look at the device or file system that it waits for"


def _frozen_evidence(view: RankView) -> str:
    process = view.evidence.process
    channel = f", kernel function {process.wait_channel}" if process is not None and process.wait_channel else ""
    return f"pid {view.pid} of rank {view.rank} is in state {view.state}{channel}"


def _waiting_for(case: Case, culprits: list[int]) -> str:
    victims = case.victims(culprits)
    if not victims:
        return ""
    waits = words.verb(len(victims), "waits", "wait")
    return f"; {case.name(victims)} {waits} for it{words.at(case.usual_place(victims))}"
