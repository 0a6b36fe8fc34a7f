"""Hosts on which NCCL found no network interface that it may use: their ranks failed by themselves."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch import words
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict

from . import communicators
from .ends import failures
from .model import Failure, Logs

_SHOWN = 4


def judged(ends: Sequence[Failure], logs: Logs) -> Judgement | None:
    """The verdict where no other rank is among `ends`, those that failed by themselves; None where nothing is told."""
    processes = [each for each in logs.no_interface.processes if not _went_on(each, logs)]
    ranks = _ranks(processes, logs)
    if not (processes or ranks) or {each.rank for each in ends} - ranks:
        return None
    hosts = sorted({host for host, _ in processes})
    names = sorted({logs.interface_names[each] for each in processes if each in logs.interface_names})
    begun = communicators.half_set_up(logs)
    victims = {*failures(logs), *(each.rank for each in logs.timeouts), *(begun.begun if begun else ())} - ranks
    verdict = Verdict(
        cause="exception-on-one-rank",
        certainty=Certainty.LIKELY,
        summary=_summary(ranks, hosts, names),
        fix=_fix(hosts, names),
        culprits=tuple(_culprit(rank, hosts, logs) for rank in sorted(ranks)),
        victims=tuple(sorted(victims)),
        evidence=("NCCL says: no socket interface found", *communicators.evidence(logs)),
    )
    return Judgement(Status.FAILED, Stage.START, verdict)


def _went_on(process: tuple[str, int], logs: Logs) -> bool:
    """Whether the process set up a communicator all the same: it took another kind of network."""
    return any(known.processes.get(rank) == process for known in logs.communicators.values() for rank in known.complete)


def _ranks(processes: Sequence[tuple[str, int]], logs: Logs) -> set[int]:
    found = (logs.rank_of(each) for each in processes)
    by_pid = (logs.rank_of_pid(pid) for _, pid in processes)
    return logs.no_interface.ranks.union(rank for rank in (*found, *by_pid) if rank is not None)


def _culprit(rank: int, hosts: Sequence[str], logs: Logs) -> Culprit:
    raised = logs.raised.get(rank)
    return Culprit(rank, host=hosts[0] if len(hosts) == 1 else "", where=raised.where if raised else None)


def _summary(ranks: set[int], hosts: Sequence[str], names: Sequence[str]) -> str:
    where = f" on {words.listed(hosts[:_SHOWN])}" if hosts else ""
    whose = f"{words.ranks(sorted(ranks), capital=True)} failed at the start: " if ranks else ""
    found = f"{whose}NCCL found no network interface that it may use{where}"
    if not names:
        return f"{found}."
    return f"{found}: NCCL_SOCKET_IFNAME={words.listed(names)} names none that is up and has an address there."


def _fix(hosts: Sequence[str], names: Sequence[str]) -> str:
    there = words.listed(hosts[:_SHOWN]) if hosts else "that host"
    verb = "correct NCCL_SOCKET_IFNAME" if names else "set NCCL_SOCKET_IFNAME"
    return f"{verb} on {there} to an interface that `ip -br addr` shows there as up, in the network of the other hosts"
