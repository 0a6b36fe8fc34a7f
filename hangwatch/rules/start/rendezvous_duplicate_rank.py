"""Two processes that claim one rank."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.arrivals import Arrivals, host_of, registered
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, Culprit, Launched, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

REPLACED_S = 3.0  # seconds; two claimants of one rank may be an old process on its way out and its successor


def duplicate_rank(case: Case) -> Finding | None:
    """Two living processes claim one rank, and none of them is the other's child."""
    claims = _claims(case)
    rank, pids = next(((rank, pids) for rank, pids in sorted(claims.items()) if len(pids) > 1), (None, {}))
    if rank is None or any(registered(view) for view in case if not view.dead and view.rank != rank):
        return None
    oldest_first = sorted(pids, key=lambda pid: pids[pid])
    settled = case.snapshot.taken_at - max(pids.values()) > REPLACED_S
    named = words.listed(f"pid {pid}" for pid in oldest_first)
    apart = max(pids.values()) - min(pids.values())
    return Finding(
        "rendezvous-duplicate-rank",
        Certainty.PROVEN,
        f"{words.plural(len(pids), 'process')} claim rank {rank} at the same time: {named}{_unclaimed(case, claims)}.",
        fix=_one_too_many(oldest_first, apart),
        culprits=tuple(Culprit(rank, pid, host_of(case)) for pid in oldest_first),
        victims=tuple(view.rank for view in Arrivals(case).waiting if view.rank != rank),
        evidence=(
            f"{named} have RANK={rank} in their environment, and lived at the same time",
            f"pid {oldest_first[-1]} was started {words.duration(apart)} after pid {oldest_first[0]}",
        ),
        status=_status_of_twins(case, settled),
        awaited=(rank,),
    )


def _unclaimed(case: Case, claims: dict[int, dict[int, float]]) -> str:
    """The ranks that no process claims, where as many processes as ranks were started: they have wrong numbers."""
    missing = [rank for rank in case.absent if rank not in claims]
    if not missing or sum(map(len, claims.values())) < case.size:
        return ""
    return f"; none claims {case.name(missing)}"


def _status_of_twins(case: Case, settled: bool) -> Status:
    if case.ranks and all(view.dead or view.reading is None or _failed(view) for view in case):
        return Status.FAILED
    return Status.HUNG if settled else Status.WAITING


def _failed(view: RankView) -> bool:
    return view.reading is not None and view.reading.exception is not None and view.reading.exception.fatal


def _one_too_many(oldest_first: list[int], apart: float) -> str:
    if apart > 60:
        return f"kill {oldest_first[0]}, which is left from an earlier start"
    return "give every process its own RANK, and start each rank once"


def _claims(case: Case) -> dict[int, dict[int, float]]:
    """Rank to the processes that claim it and have lived at the same time, each with its start."""
    found: dict[int, dict[int, float]] = {}
    parents: dict[int, int | None] = {}
    for entry in case.snapshot.ranks:
        if entry.pid is not None and (entry.process is None or entry.process.state not in ("X", "Z")):
            started = entry.reading.identity.started_at if entry.reading is not None else 0.0
            found.setdefault(entry.rank, {})[entry.pid] = started
            parents[entry.pid] = entry.process.parent if entry.process is not None else None
    for each in case.snapshot.launched:
        lived_on = [other for other in case.snapshot.launched if other.rank == each.rank and _overlap(each, other)]
        if each.ended_at is None or lived_on:
            found.setdefault(each.rank, {}).setdefault(each.pid, each.started_at)
    return {rank: {pid: at for pid, at in pids.items() if parents.get(pid) not in pids} for rank, pids in found.items()}


def _overlap(one: Launched, other: Launched) -> bool:
    ends = (one.ended_at or float("inf"), other.ended_at or float("inf"))
    return one.pid != other.pid and min(ends) - max(one.started_at, other.started_at) > REPLACED_S
