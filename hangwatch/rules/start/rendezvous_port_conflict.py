"""Another program holds the master's port."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import Arrivals, address, ends_the_others
from hangwatch.facts.start.connections import found_port_taken
from hangwatch.model import Certainty, Culprit, ProcessFacts, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding


def port_conflict(case: Case) -> Finding | None:
    """The master's port is held by a process that is no part of the job, or a rank was refused it."""
    arrivals = Arrivals(case)
    refused = [view for view in case if found_port_taken(view)]
    stranger = _stranger(case)
    if not refused and (stranger is None or not _host_is_missing(arrivals)):
        return None
    waiting = [view.rank for view in arrivals.waiting if view not in refused]
    port = _port(case)
    owner = _words_of(stranger) if stranger is not None else "another process"
    hit = f"; {case.name([view.rank for view in refused])} was refused it" if refused else ""
    lost = f", and {case.wait_words(waiting)} there for a job that is not theirs" if waiting else ""
    alive = waiting and not ends_the_others(case)
    return Finding(
        "rendezvous-port-conflict",
        Certainty.PROVEN if refused and stranger is not None else Certainty.LIKELY,
        f"Port {port}, this job's rendezvous, belongs to {owner}{hit}{lost}.",
        fix=_free_it(stranger),
        culprits=(Culprit(None, stranger.pid, _host(case), process="other"),) if stranger and stranger.pid else (),
        victims=tuple(sorted({*waiting, *(view.rank for view in refused)})),
        evidence=tuple(_conflict_evidence(refused, stranger, port)),
        status=Status.HUNG if alive else Status.FAILED,
    )


def _host_is_missing(arrivals: Arrivals) -> bool:
    """Rank 0, which would listen, is not waiting, although others do."""
    return bool(arrivals.waiting) and not any(view.rank == 0 for view in (*arrivals.waiting, *arrivals.late))


def _stranger(case: Case) -> ProcessFacts | None:
    """The process that listens on the master's port and is no process of this job."""
    snapshot = case.snapshot
    job = {entry.pid for entry in snapshot.ranks} | {each.pid for each in snapshot.launched}
    job |= {each.facts.pid for each in (*snapshot.launchers, *snapshot.others) if each.role != "stranger"}
    job |= {each.facts.pid for entry in snapshot.ranks for each in (*entry.workers, *entry.children)}
    listeners = (node.master_listener for node in snapshot.nodes if node.master_listener is not None)
    return next((listener for listener in listeners if listener.pid not in job), None)


def _port(case: Case) -> str:
    return next((port for view in case if (port := address(view)[1])), "MASTER_PORT")


def _words_of(stranger: ProcessFacts) -> str:
    if not stranger.pid:
        return "a process of another user"
    return f"another program, pid {stranger.pid} ({words.command(stranger.command)})"


def _free_it(stranger: ProcessFacts | None) -> str:
    other = "take a free port: torchrun --standalone, --rdzv-endpoint=HOST:FREE_PORT, or another MASTER_PORT"
    if stranger is None or not stranger.pid:
        return other
    return f"{other}; or end pid {stranger.pid}, if it is left from an earlier run"


def _conflict_evidence(refused: list[RankView], stranger: ProcessFacts | None, port: str) -> Iterable[str]:
    if stranger is not None:
        yield f"port {port} is held by {_words_of(stranger)}, which is no process of this job"
    for view in refused[: words.SHOWN]:
        yield f"rank {view.rank} (pid {view.pid}) failed to listen: {words.error(view.exception)}"


def _host(case: Case) -> str:
    return next((node.host for node in case.snapshot.nodes if node.master_listener is not None), "")
