"""The place where the ranks meet: somebody else sits there, or nobody does, or not all go to the same one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from ..records import Certainty, Culprit, ProcessFacts, Status
from . import words
from .arrivals import Arrivals, address, ends_the_others
from .case import Case, RankView
from .finding import Finding

TAKEN = re.compile(r"EADDRINUSE|address already in use|errno: ?98\b", re.IGNORECASE)
SETTLED_S = 5.0  # a connection may be a moment late


# ------------------------------------------------------------------------------------------ somebody else's port


def port_conflict(case: Case) -> Finding | None:
    """The master's port is held by a process that is no part of the job, or a rank was refused it."""
    arrivals = Arrivals(case)
    refused = [view for view in case if _was_refused(view)]
    stranger = _stranger(case)
    if not refused and (stranger is None or not _host_is_missing(arrivals)):
        return None
    waiting = [view.rank for view in arrivals.waiting]
    port = _port(case)
    who = _words_of(stranger) if stranger is not None else "another process"
    hit = f"; {case.name([view.rank for view in refused])} was refused it" if refused else ""
    lost = f", and {case.wait_words(waiting)} there for a job that is not theirs" if waiting else ""
    alive = waiting and not ends_the_others(case)
    return Finding(
        "rendezvous-port-conflict",
        Certainty.PROVEN if refused and stranger is not None else Certainty.LIKELY,
        f"Port {port}, where this job's ranks meet, belongs to {who}{hit}{lost}.",
        fix=_free_it(stranger, port),
        culprits=(Culprit(None, stranger.pid, _host(case), process="other"),) if stranger and stranger.pid else (),
        victims=tuple(sorted({*waiting, *(view.rank for view in refused)})),
        evidence=tuple(_conflict_evidence(refused, stranger, port)),
        status=Status.HUNG if alive else Status.FAILED,
    )


def _was_refused(view: RankView) -> bool:
    exception = view.exception
    return exception is not None and TAKEN.search(f"{exception.type} {exception.message}") is not None


def _host_is_missing(arrivals: Arrivals) -> bool:
    """Rank 0, which would listen, is not waiting, although others do."""
    return bool(arrivals.waiting) and not any(view.rank == 0 for view in (*arrivals.waiting, *arrivals.late))


def _stranger(case: Case) -> ProcessFacts | None:
    """Who listens on the master's port and is no process of this job."""
    snapshot = case.snapshot
    job = {entry.pid for entry in snapshot.ranks} | {each.pid for each in snapshot.launched}
    job |= {each.facts.pid for each in (*snapshot.launchers, *snapshot.others)}
    job |= {each.facts.pid for entry in snapshot.ranks for each in (*entry.workers, *entry.children)}
    listeners = (node.master_listener for node in snapshot.nodes if node.master_listener is not None)
    return next((listener for listener in listeners if listener.pid not in job), None)


def _port(case: Case) -> str:
    return next((port for view in case if (port := address(view)[1])), "MASTER_PORT")


def _words_of(stranger: ProcessFacts) -> str:
    if not stranger.pid:
        return "a process of another user"
    return f"another program, pid {stranger.pid} ({words.command(stranger.command)})"


def _free_it(stranger: ProcessFacts | None, port: str) -> str:
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


# ------------------------------------------------------------------------------------------ nobody there


def unreachable_master(case: Case) -> Finding | None:
    """Some ranks try to connect to the master, and are not connected: another address, or nobody listens."""
    arrivals = Arrivals(case)
    lost = [view for view in arrivals.waiting if _is_lost(view)]
    if not lost:
        return None
    host = next((view for view in arrivals.waiting if view.rank == 0 and view not in lost), None)
    astray = _astray(arrivals, lost)
    if astray:
        return _goes_elsewhere(case, arrivals, astray)
    if any(view.rank == 0 for view in arrivals.late) or any(each.rank == 0 for each in arrivals.unborn):
        return None  # rank 0 is on its way
    if host is None and 0 in arrivals.absent:
        return _nobody_listens(case, arrivals, lost)
    return _no_way(case, arrivals, lost)


def _is_lost(view: RankView) -> bool:
    """Known to have no connection to the port where it is to meet the others."""
    process, port = view.evidence.process, address(view)[1]
    if process is None or not port or any(reason.startswith("sockets") for reason in process.unreadable):
        return False
    return not any(
        socket.local.endswith(f":{port}") if socket.state == "listen" else _joins(socket.remote, socket.local, port)
        for socket in process.sockets
        if socket.state in ("established", "listen")
    )


def _joins(remote: str, local: str, port: str) -> bool:
    return remote.endswith(f":{port}") or local.endswith(f":{port}")


def _astray(arrivals: Arrivals, lost: list[RankView]) -> list[RankView]:
    """The ranks whose address is another one than that of most ranks; of two halves, those that differ from rank 0.

    Rank 0's address is where the ranks meet, whatever was meant: with two ranks, rank 1 is the one that goes elsewhere.
    """
    everyone = {view.rank: address(view) for view in (*arrivals.waiting, *arrivals.late)}
    if len(set(everyone.values())) < 2:
        return []
    most, count = Counter(everyone.values()).most_common(1)[0]
    right = most if 2 * count > len(everyone) else everyone.get(0, most)
    return [view for view in arrivals.waiting if everyone[view.rank] != right and (view in lost or view.rank == 0)]


def _goes_elsewhere(case: Case, arrivals: Arrivals, astray: list[RankView]) -> Finding:
    others = [view for view in (*arrivals.waiting, *arrivals.late) if view not in astray]
    wrong, right = address(astray[0]), address(others[0])
    settled = all(view.steady and arrivals.age(view) > SETTLED_S for view in astray)
    culprits = [view.rank for view in astray]
    outvoted = len(others) > len(astray)  # of two halves, either may be what was meant
    name = "MASTER_PORT" if wrong[0] == right[0] else "MASTER_ADDR"
    return Finding(
        "rendezvous-unreachable-master",
        Certainty.PROVEN if settled and outvoted else Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} {words.verb(len(culprits), 'looks', 'look')} for the master at"
        f" {':'.join(wrong)}, and {case.name([view.rank for view in others])} at {':'.join(right)}.",
        fix=f"give every rank the same {name}: {right[0] if name == 'MASTER_ADDR' else right[1]}",
        culprits=tuple(view.culprit() for view in astray),
        victims=tuple(view.rank for view in others),
        evidence=tuple(
            f"rank {view.rank} (pid {view.pid}) has MASTER_ADDR:MASTER_PORT {':'.join(address(view))}{_connected(view)}"
            for view in [*astray, *others][: words.SHOWN]
        ),
        status=Status.HUNG if settled or case.stalled(culprits) else Status.WAITING,
    )


def _connected(view: RankView) -> str:
    return " and is not connected to it" if _is_lost(view) else ""


def _nobody_listens(case: Case, arrivals: Arrivals, lost: list[RankView]) -> Finding:
    place = ":".join(address(lost[0]))
    ranks = [view.rank for view in lost]
    return Finding(
        "rendezvous-unreachable-master",
        Certainty.PROVEN if arrivals.nobody_else_comes else Certainty.LIKELY,
        f"Rank 0 never came: nobody listens at {place}, where {case.name(ranks)}"
        f" {words.verb(len(ranks), 'tries', 'try')} to connect{words.at(lost[0].where)}.",
        fix="start rank 0, or give MASTER_ADDR and MASTER_PORT of the process that is rank 0",
        culprits=(Culprit(0),),
        victims=tuple(ranks),
        evidence=(
            "there is no process for rank 0",
            f"{case.name(ranks)} {words.verb(len(ranks), 'has', 'have')} no connection to {place}",
            *_name_evidence(case, lost),
        ),
        status=Status.HUNG if arrivals.nobody_else_comes or case.stalled(ranks) else Status.WAITING,
    )


def _no_way(case: Case, arrivals: Arrivals, lost: list[RankView]) -> Finding | None:
    """Same address, and no connection: a name that does not resolve, a firewall, another network."""
    if len(lost) == len(arrivals.waiting) and arrivals.absent:
        return None
    place = ":".join(address(lost[0]))
    ranks = [view.rank for view in lost]
    unknown = any(node.master_resolves is False for node in case.snapshot.nodes)
    why = "the name does not resolve" if unknown else "no connection comes about"
    return Finding(
        "rendezvous-unreachable-master",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} cannot reach the master at {place}: {why}.",
        culprits=tuple(view.culprit() for view in lost) if len(lost) < len(arrivals.waiting) else (),
        victims=tuple(view.rank for view in arrivals.waiting if view not in lost),
        evidence=(
            *(f"rank {view.rank} (pid {view.pid}) has no connection to {place}" for view in lost[: words.SHOWN]),
            *_name_evidence(case, lost),
        ),
        awaited=tuple(ranks),
    )


def _name_evidence(case: Case, lost: list[RankView]) -> Iterable[str]:
    if any(node.master_resolves is False for node in case.snapshot.nodes):
        yield f"the name {address(lost[0])[0]} does not resolve on this machine"
