"""A circle of waits over several groups: one rank stands in a call that is new to all, the others in usual ones."""

from __future__ import annotations

from itertools import pairwise

from hangwatch import words
from hangwatch.facts.call_site import Caller
from hangwatch.facts.call_sites import caller_of, sites_of
from hangwatch.facts.case import Case
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.sides import spread
from hangwatch.rules.finding import Finding


def alone_in_a_circle(case: Case) -> Finding | None:
    """The others would have come to its call, had they ever made it: it is no matter of the order of groups.

    That a place is new is known from the first iteration on, or where the source leads to it by the rank.
    """
    circle = [case.blocked[rank] for rank in case.graph.cycle(case.deadlocked)]
    groups = {entry.group.key for entry in circle if entry.group is not None}
    callers = {entry.rank: _caller(case, entry) for entry in circle}
    if len(groups) < 2 or any(entry.to_a_peer for entry in circle) or None in callers.values():
        return None
    new = [entry for entry in circle if _is_new(case, entry.rank, callers[entry.rank])]
    usual = [entry for entry in circle if _is_usual(case, entry.rank, callers[entry.rank])]
    if len(new) != 1 or len(new) + len(usual) < len(circle):
        return None
    (alone,) = new
    guarded = case.ranks[alone.rank].now.guard == "rank"
    if not guarded and not all(0 in sites_of(case).by_step(entry.rank) for entry in circle):
        return None
    return _finding(case, alone, circle, guarded=guarded)


def _caller(case: Case, entry: Blocked) -> Caller | None:
    return caller_of(case, entry.rank, entry.call) if entry.call is not None else None


def _is_new(case: Case, rank: int, made: Caller | None) -> bool:
    """No rank has made another call from there."""
    sites = sites_of(case)
    return made is not None and all(sites.callers(each)[made] <= (each == rank) for each in spread([*case.ranks, rank]))


def _is_usual(case: Case, rank: int, made: Caller | None) -> bool:
    return made is not None and sites_of(case).callers(rank)[made] > 1


def _finding(case: Case, alone: Blocked, circle: list[Blocked], *, guarded: bool) -> Finding:
    others = tuple(entry.rank for entry in circle if entry is not alone)
    where = case.ranks[alone.rank].where
    witnesses = [Witness(Kind.PLACE, f"no rank had ever called a collective at {words.place(where)}")]
    if guarded:
        said = f"the source leads to {words.place(where)} only under a condition on the rank"
        witnesses.append(Witness(Kind.SOURCE, said))
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,  # the others may be meant to come there, for the first time
        f"Rank {alone.rank} is alone in {alone.op}{words.at(where)}, which the other ranks never call;"
        f" {case.name(others)} {words.verb(len(others), 'waits', 'wait')} for it, where every iteration comes.",
        culprits=(case.ranks[alone.rank].culprit(),),
        victims=tuple(sorted(case.deadlocked - {alone.rank})),
        step=case.step_of((alone.rank,)),
        evidence=tuple(f"rank {entry.rank} is in {entry.op}{words.at(entry.where)}" for entry in circle),
        witnesses=tuple(witnesses),
        waits=tuple(case.wait(one.rank, (other.rank,)) for one, other in pairwise([*circle, circle[0]])),
        awaited=(alone.rank,),
    )
