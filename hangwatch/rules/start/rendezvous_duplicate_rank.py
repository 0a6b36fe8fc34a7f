"""Two processes that claim one rank."""

from __future__ import annotations

from collections.abc import Container

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import Arrivals, host_of, registered
from hangwatch.model import Certainty, Culprit, Launched, Status
from hangwatch.ranks.views import views_of
from hangwatch.rules.finding import Finding

_EARLIER_S = 60.0  # seconds between two starts; the processes of one launch start closer together
REPLACED_S = 3.0  # seconds; two claimants of one rank may be an old process on its way out and its successor


def duplicate_rank(case: Case) -> Finding | None:
    """Two living processes claim one rank, and none of them is the other's child; so it may be for several ranks."""
    claims = _claims(case)
    twins = {rank: pids for rank, pids in sorted(claims.items()) if len(pids) > 1 and _meet(case, pids)}
    if not twins or _have_met(case, twins):
        return None
    rank, pids = next(iter(twins.items()))
    settled = case.snapshot.taken_at - max(at for each in twins.values() for at in each.values()) > REPLACED_S
    apart = max(pids.values()) - min(pids.values())
    others = "".join(
        f", and {len(each)} rank {other}: {_named(each)}" for other, each in twins.items() if other != rank
    )
    return Finding(
        "rendezvous-duplicate-rank",
        Certainty.PROVEN,
        f"{words.plural(len(pids), 'process')} claim rank {rank} at the same time: {_named(pids)}{others}"
        f"{_unclaimed(case, claims)}.",
        fix=_by_local_rank(case, twins) or _one_too_many(twins),
        culprits=tuple(Culprit(each, pid, host_of(case)) for each in twins for pid in _oldest_first(twins[each])),
        victims=tuple(view.rank for view in Arrivals(case).waiting if view.rank not in twins),
        evidence=(
            *(_lived(case, each, twins[each]) for each in list(twins)[: words.SHOWN]),
            f"pid {_oldest_first(pids)[-1]} was started {words.duration(apart)} after pid {_oldest_first(pids)[0]}",
        ),
        status=_status_of_twins(case, settled),
        awaited=tuple(twins),
    )


def _meet(case: Case, pids: dict[int, float]) -> bool:
    """They look for each other at one address, as far as is known: else they belong to two jobs of one command."""
    environment = _environments(case)
    known = (environment.get(pid, {}) for pid in pids)
    asked = {(its["MASTER_ADDR"], its["MASTER_PORT"]) for its in known if {"MASTER_ADDR", "MASTER_PORT"} <= its.keys()}
    return len(asked) <= 1


def _have_met(case: Case, twins: Container[int]) -> bool:
    """A rank that exists once is registered, or every process is: none of them waits for a rank that is missing."""
    living = [view for view in views_of(case.snapshot) if not view.dead]
    joined = [view.rank for view in living if registered(view)]
    return any(rank not in twins for rank in joined) or len(joined) == len(living) > 0


def _oldest_first(pids: dict[int, float]) -> list[int]:
    return sorted(pids, key=lambda pid: pids[pid])


def _named(pids: dict[int, float]) -> str:
    return words.listed(f"pid {pid}" for pid in _oldest_first(pids))


def _lived(case: Case, rank: int, pids: dict[int, float]) -> str:
    """What makes each of them that rank: its environment, or what it gave to init_process_group."""
    environment = _environments(case)
    other = {
        pid: its for pid in _oldest_first(pids) if (its := environment.get(pid, {}).get("RANK", str(rank))) != str(rank)
    }
    if not other:
        return f"{_named(pids)} have RANK={rank} in their environment, and lived at the same time"
    told = words.listed(f"pid {pid} has RANK={its}" for pid, its in other.items())
    return f"{_named(pids)} join as rank {rank}, and lived at the same time; in its environment {told}"


def _by_local_rank(case: Case, twins: dict[int, dict[int, float]]) -> str:
    """The fix where each joins under its LOCAL_RANK, which is another number than its RANK on one of them."""
    environment = _environments(case)
    known = [(str(rank), environment.get(pid, {})) for rank, pids in twins.items() for pid in pids]
    local = all(its.get("LOCAL_RANK") == rank for rank, its in known)
    if not local or all(its.get("RANK", rank) == rank for rank, its in known):
        return ""
    return 'join as RANK and not as LOCAL_RANK, which begins with 0 on each node: rank=int(os.environ["RANK"])'


def _environments(case: Case) -> dict[int, dict[str, str]]:
    """The environment of each process that claims a rank, by its pid."""
    found = {each.pid: dict(each.environment) for each in case.snapshot.launched}
    boards = ((each.pid, each.reading.identity.environment) for each in case.snapshot.ranks if each.reading is not None)
    return {**found, **{pid: dict(its) for pid, its in boards if pid is not None}}


def _unclaimed(case: Case, claims: dict[int, dict[int, float]]) -> str:
    """The ranks that no process claims, where as many processes as ranks were started: they have wrong numbers."""
    missing = [rank for rank in case.absent if rank not in claims]
    if not missing or sum(map(len, claims.values())) < case.size:
        return ""
    return f"; none claims {case.name(missing)}"


def _status_of_twins(case: Case, settled: bool) -> Status:
    if case.ranks and all(view.dead or view.reading is None or view.raised for view in case):
        return Status.FAILED
    return Status.HUNG if settled else Status.WAITING


def _one_too_many(twins: dict[int, dict[int, float]]) -> str:
    left = [_oldest_first(pids)[0] for pids in twins.values() if max(pids.values()) - min(pids.values()) > _EARLIER_S]
    if left:
        are = words.verb(len(left), "is", "are")
        return f"kill {words.listed(map(str, left))}, which {are} left from an earlier start"
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
    with_boards = {entry.pid for entry in case.snapshot.ranks if entry.reading is not None}
    for each in case.snapshot.launched:
        if each.pid in with_boards and each.pid not in found.get(each.rank, {}):
            continue  # it joins as another rank than that of its environment
        lived_on = [other for other in case.snapshot.launched if other.rank == each.rank and _overlap(each, other)]
        if each.ended_at is None or lived_on:
            found.setdefault(each.rank, {}).setdefault(each.pid, each.started_at)
    return {rank: {pid: at for pid, at in pids.items() if parents.get(pid) not in pids} for rank, pids in found.items()}


def _overlap(one: Launched, other: Launched) -> bool:
    ends = (one.ended_at or float("inf"), other.ended_at or float("inf"))
    return one.pid != other.pid and min(ends) - max(one.started_at, other.started_at) > REPLACED_S
