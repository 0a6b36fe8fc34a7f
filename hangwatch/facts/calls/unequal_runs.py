"""Calls of one group that ranks of two roles make in a row, each from lines of their own, and one side makes more.

A trainer publishes its weights tensor by tensor, and a sampler loads them so. Where the two do not count the same
tensors, the side that counts more waits for a call that no rank makes, and its peer has gone on to other work.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.call_site import same, site
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective
from hangwatch.proof.waits import Blocked

SHARED = 2  # calls that both sides made in that run: fewer are no run


@dataclass(frozen=True)
class UnequalRuns:
    """`longer` wait in one more call of the run than `shorter` made; both sides began it at one number."""

    longer: tuple[int, ...]
    shorter: tuple[int, ...]
    made: int  # by those with fewer
    one_more: Collective
    last: Collective  # of those with fewer


@once
def unequal_runs(case: Case) -> UnequalRuns | None:
    """For ranks that wait for each other for good, where a run of calls tells it."""
    waits = [case.blocked[rank] for rank in sorted(case.deadlocked)]
    for entry in {id(each.need): each for each in waits if not each.to_a_peer}.values():  # one for each call
        if (found := _behind(case, entry, waits)) is not None:
            return found
    return None


def _behind(case: Case, entry: Blocked, waits: list[Blocked]) -> UnequalRuns | None:
    call, group = entry.call, entry.group
    if call is None or group is None or site(call) is None:
        return None
    own, shorter = _run(case, entry.rank, call.group), tuple(sorted(group.behind(call.seq)))
    if not shorter or len(own) <= SHARED or own[-1].seq != call.seq or not case.deadlocked.issuperset(shorter):
        return None
    runs = [_run(case, rank, call.group) for rank in shorter]
    if not all(run and _ends_before(run, own) for run in runs):
        return None
    longer = tuple(each.rank for each in waits if each.group is group and each.seq == call.seq)
    return UnequalRuns(longer, shorter, len(own) - 1, call, runs[0][-1])


def _run(case: Case, rank: int, group: str) -> list[Collective]:
    """The last calls of `rank` in a group that it made in a row, from one line."""
    run: list[Collective] = []
    for call in reversed(case.ranks[rank].evidence.board_calls):
        if call.group == group and (not run or _alike(call, run[-1])):
            run.append(call)
        elif run:
            break
    return run[::-1]


def _ends_before(run: list[Collective], longer: list[Collective]) -> bool:
    """It began with the longer one, ended one call earlier, and comes from another line."""
    spans = [(each[0].seq, each[-1].seq) for each in (run, longer)]
    return spans[0] == (spans[1][0], spans[1][1] - 1) and not _alike(run[-1], longer[-1])


def _alike(one: Collective, other: Collective) -> bool:
    here, there = site(one), site(other)
    return one.op == other.op and here is not None and there is not None and same(here, there)
