"""The chain of waits: from the victims to the ranks at fault, and on to what these wait for themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from hangwatch.facts.case import Case, call_words
from hangwatch.facts.processes.chain_end import chain_end
from hangwatch.facts.processes.locks import lock_name, lock_wait
from hangwatch.model import ChainEnd, Culprit, Phase, Wait
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.ledger import family
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing

_MEETINGS = {Doing.RENDEZVOUS: "init_process_group", Doing.NEW_GROUP: "new_group"}


def with_chain(case: Case, finding: Finding, victims: tuple[int, ...]) -> Finding:
    """`finding` with its waits and ends; those of ranks that were looked at as they stood before stay."""
    if finding.ends is not None:
        return finding
    blamed = finding.blamed
    waits = chain(case, blamed, victims) if finding.waits is None else finding.waits
    waits = (*waits, *own_waits(case, blamed, waits))
    return replace(finding, waits=waits, ends=chain_ends(case, finding.culprits, waits))


def chain(case: Case, culprits: Sequence[int], victims: tuple[int, ...]) -> tuple[Wait, ...]:
    """The shortest chain of waits from the victims to the culprits; victims that wait alike share one."""
    outside = _outside_of_calls(case, culprits, victims)
    direct = [rank for rank in victims if (entry := case.blocked.get(rank)) and _awaits(entry, culprits)]
    if direct:
        return (*outside, *(_direct(case, alike, culprits) for alike in _alike(case, direct)))
    beside = {alike[0]: alike for alike in _alike(case, victims)}
    path = pairwise(case.graph.chain(victims, culprits))
    proven = [case.wait(rank, (following,), also=beside.get(rank, [])[1:]) for rank, following in path]
    return (*outside, *(proven or _likely(case, culprits, [*beside.values()])))


def _likely(case: Case, culprits: Sequence[int], victims: Sequence[list[int]]) -> list[Wait]:
    """Waits of which the proof makes no use: for culprits that made another call under the number of a victim's.

    Where none is known to have, as where calls of one kind are mispaired, at least for whom, or in what, victims wait.
    """
    lacking = [not_come(case, case.blocked[alike[0]]) for alike in victims]
    to_culprits = [whom.intersection(culprits) for whom in lacking]
    return [
        case.wait(alike[0], tuple(sorted(blamed or whom)), also=alike[1:])
        for alike, whom, blamed in zip(victims, lacking, to_culprits, strict=True)
        if blamed or not any(to_culprits)
    ]


def _outside_of_calls(case: Case, culprits: Sequence[int], victims: Iterable[int]) -> list[Wait]:
    """The waits of victims in no collective: for a lock that a culprit holds, or at the start of the job."""
    found: dict[Wait, list[int]] = {}
    for view in case.views(victims):
        wait = None if view.rank in case.blocked or view.rank in culprits else _outside_of_a_call(view, culprits)
        if wait is not None:
            found.setdefault(wait, []).append(view.rank)
    return [replace(wait, rank=ranks[0], also=tuple(ranks[1:])) for wait, ranks in found.items()]


def _outside_of_a_call(view: RankView, culprits: Sequence[int]) -> Wait | None:
    """The wait of one rank, without its number."""
    lock = lock_wait(view)
    holder = lock.holder if lock is not None else None
    if lock is not None and holder is not None and holder in culprits:
        return Wait(-1, (holder,), f"acquiring {lock_name(lock.lock)}", lock.where)
    meeting = _MEETINGS.get(view.now.doing)
    return Wait(-1, tuple(culprits), meeting, view.where) if meeting is not None and not view.dead else None


def own_waits(case: Case, culprits: Iterable[int], told: Iterable[Wait]) -> tuple[Wait, ...]:
    """The calls in which culprits stand themselves, each with the ranks that have not come to it, as far as known."""
    known = {rank for wait in told for rank in wait.waiting}
    own = dict.fromkeys(rank for rank in culprits if rank in case.blocked and rank not in known)
    return tuple(
        case.wait(alike[0], tuple(sorted(not_come(case, case.blocked[alike[0]]))), also=alike[1:])
        for alike in _alike(case, own)
    )


def not_come(case: Case, entry: Blocked) -> set[int]:
    """The ranks that a call lacks: they have not made it, or have made another one under its number."""
    in_backward = _in_backward_unseen(case)
    if entry.need is not None:
        return {*entry.need.absent, *entry.need.never} - {entry.rank} - in_backward
    group, seq, kind = entry.group, entry.seq, family(entry.op)
    if group is None or seq is None or entry.to_a_peer:
        return set()
    calls = {rank: case.ledger.call(rank, group.name, seq) for rank in group.members}
    others = {rank for rank, call in calls.items() if kind and call is not None and family(call.op) not in ("", kind)}
    return {*entry.lacking, *others} - {entry.rank} - in_backward


def _in_backward_unseen(case: Case) -> set[int]:
    """Ranks that were in their backward, of which no stack is left: what they have called there no board says."""
    return {view.rank for view in case if view.phase is Phase.BACKWARD and not view.evidence.stacks}


def chain_ends(case: Case, culprits: Iterable[Culprit], waits: Iterable[Wait]) -> tuple[ChainEnd, ...]:
    """What the culprits do, or wait for, that wait for no rank; those of which the same is true share one."""
    known = {rank for wait in waits for rank in wait.waiting}
    found: dict[ChainEnd, list[int]] = {}
    for culprit in culprits:
        if culprit.rank is not None and culprit.rank not in known and (end := _end_of(case, culprit)) is not None:
            known.add(culprit.rank)
            found.setdefault(replace(end, rank=-1), []).append(culprit.rank)
    return tuple(replace(end, rank=ranks[0], also=tuple(ranks[1:])) for end, ranks in found.items())


def _end_of(case: Case, culprit: Culprit) -> ChainEnd | None:
    """What the rank of a culprit does; None for a process that has outlived its rank, of which that tells nothing."""
    view = case.ranks.get(culprit.rank) if culprit.rank is not None else None
    if view is None:
        return ChainEnd(-1, "has no process that is known")
    return chain_end(case, view) if culprit.process in ("rank", "loader-worker") or not view.dead else None


def _awaits(entry: Blocked, culprits: Sequence[int]) -> bool:
    return entry.need is not None and not set(entry.need.absent).isdisjoint(culprits)


def _direct(case: Case, waiting: list[int], culprits: Sequence[int]) -> Wait:
    need = case.blocked[waiting[0]].need
    absent = set(need.absent) - _in_backward_unseen(case) if need is not None else set()
    return case.wait(waiting[0], tuple(sorted(absent.intersection(culprits))), also=waiting[1:])


def _alike(case: Case, ranks: Iterable[int]) -> Iterable[list[int]]:
    """Ranks that wait for the same ranks in the same call, on the same line."""
    found: dict[object, list[int]] = {}
    for rank in ranks:
        entry = case.blocked.get(rank)
        if entry is not None:
            found.setdefault((id(entry.need), id(entry.group), call_words(entry), entry.where), []).append(rank)
    return found.values()
