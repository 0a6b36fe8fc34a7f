"""The line that a terminal shows while a job stands still and nothing is proven: facts, and when they are reported.

It says which ranks wait, where, for which ranks, and what those do. It is no alarm, and it names no cause: a cause is
for the verdict, which has to bear it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hangwatch.facts.case import Case
from hangwatch.facts.processes.chain_end import chain_end, long_stage
from hangwatch.facts.start.arrivals import Arrivals
from hangwatch.judge.patience import in_first_step
from hangwatch.launchers import TORCH_PROGRAMS
from hangwatch.model import Snapshot
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import CALLED
from hangwatch.words import at, listed, verb

from . import words

LONGEST = 400  # characters of what is known
MOST_PARTS = 3  # groups of ranks that are told apart


def stands(snapshot: Snapshot, still_s: float, after_s: float | None, *, elsewhere: bool = False) -> str:
    """`no progress for 10 s: ranks 0 and 2-3 wait in backward (train.py:66) for rank 1, which ...`

    Args:
        snapshot: the evidence of this node.
        still_s: seconds since the job's last progress.
        after_s: seconds without progress after which it is reported; None where it is not while this lasts.
        elsewhere: the job has ranks on other nodes, of which the evidence knows nothing.
    """
    case = Case(snapshot)
    known = words.clipped("; ".join([*_known(case, elsewhere)]), LONGEST)
    report = f"reported as hung after {words.duration(after_s)}" if after_s else "not reported as hung while this lasts"
    return f"hangwatch: no progress for {words.duration(still_s)}: {known}; {report}"


def moves_again(stood_s: float) -> str:
    """`moving again after 47 s`"""
    return f"hangwatch: moving again after {words.duration(stood_s)}"


def is_long_stage(snapshot: Snapshot, after_s: float | None) -> bool:
    """The ranks that do not wait for others evaluate, compile, or read or write a checkpoint, and show work."""
    free = _free(Case(snapshot))
    return bool(free) and all(long_stage(view) and (view.works or after_s is None) for view in free)


def may_be_slow(snapshot: Snapshot) -> bool:
    """Some rank has not finished its first step, all have come, and no fact keeps any of them from going on."""
    case = Case(snapshot)
    if not case.ranks or Arrivals(case).absent or any(view.dead or view.raised or view.stopped for view in case):
        return False
    readings = [view.reading for view in case if view.reading is not None]
    return any(map(in_first_step, readings)) and not any(view.evidence.held for view in case) and bool(_free(case))


# ------------------------------------------------------------------------------------------ what is known


def _known(case: Case, elsewhere: bool) -> Iterable[str]:
    if not case.ranks:
        yield _without_ranks(case)
        return
    waiting, awaited, arrivals = _waiting(case), set(case.awaited()), Arrivals(case)
    meeting = {view.rank for view in arrivals.waiting}
    free = _free(case)
    named = [view for view in free if view.rank in awaited or (meeting and view in arrivals.late)]
    others = [view for view in free if view not in named]
    if named:
        yield f"{listed(waiting)} for {listed(_relative(case, named))}"
    elif waiting:
        yield listed(waiting)
    yield from _predicates(case, others)
    yield from _not_come(case, arrivals, elsewhere)
    if elsewhere and waiting and not free and not meeting:
        yield "the job has ranks on other nodes, of which this node knows nothing"


def _without_ranks(case: Case) -> str:
    launchers = [f"{_launcher(each.facts.command)} (pid {each.facts.pid})" for each in case.snapshot.launchers[:3]]
    tail = f"; {listed(launchers)} {verb(len(launchers), 'runs', 'run')}" if launchers else ""
    return f"no rank has been started{tail}"


def _launcher(command: str) -> str:
    return "torchrun" if any(name in command for name in TORCH_PROGRAMS) else "the launcher"


def _free(case: Case) -> list[RankView]:
    """The ranks that wait neither in a collective nor at the start."""
    meeting = {view.rank for view in Arrivals(case).waiting}
    return [view for view in case if view.rank not in case.blocked and view.rank not in meeting]


def _waiting(case: Case) -> list[str]:
    """`ranks 0 and 2-3 wait in backward (train.py:66)`, one for each place; the most ranks first."""
    places: dict[str, list[int]] = {}
    for rank, entry in case.blocked.items():
        name = CALLED.get(entry.activity.call or entry.op, entry.activity.call or entry.op)
        places.setdefault(f"{name}{at(entry.where)}", []).append(rank)
    for view in Arrivals(case).waiting:
        if view.rank not in case.blocked:
            places.setdefault(f"init_process_group{at(view.where)}", []).append(view.rank)
    largest = sorted(places.items(), key=lambda item: -len(item[1]))[:MOST_PARTS]
    return [f"{words.ranks(ranks)} {verb(len(ranks), 'waits', 'wait')} in {place}" for place, ranks in largest]


def _not_come(case: Case, arrivals: Arrivals, elsewhere: bool) -> Iterable[str]:
    """Which ranks have not come, as far as this node knows."""
    for each in arrivals.unborn if arrivals.waiting or not case.blocked else ():
        yield f"rank {each.rank} (pid {each.pid}) has been started and has not imported torch yet"
    if arrivals.absent and arrivals.waiting:
        here = " on this node" if elsewhere else ""
        came = len(case.ranks)
        said = verb(came, "was", "were") + " started"
        if arrivals.newcomers:  # processes whose number is not known before they come
            said = verb(came, "has said its number", "have said their numbers")
        yield (
            f"{words.ranks(arrivals.absent)} {verb(len(arrivals.absent), 'has', 'have')} not come{here}:"
            f" {came} of {case.size} ranks {said}"
        )


# ------------------------------------------------------------------------------------------ what a rank does


def _relative(case: Case, views: Iterable[RankView]) -> list[str]:
    """`rank 1, which sleeps in push (train.py:83)`; of several alike `ranks 1-2, each of which sleeps ...`"""

    def told(ranks: list[int], does: str) -> str:
        return f"{words.ranks(ranks)}, {'which' if len(ranks) == 1 else 'each of which'} {does}"

    return _alike(case, views, told)


def _predicates(case: Case, views: Iterable[RankView]) -> list[str]:
    """`rank 1 sleeps in push (train.py:83)`; of several alike `ranks 1-2: each sleeps ...`"""

    def told(ranks: list[int], does: str) -> str:
        return f"{words.ranks(ranks)} {does}" if len(ranks) == 1 else f"{words.ranks(ranks)}: each {does}"

    return _alike(case, views, told)


def _alike(case: Case, views: Iterable[RankView], told: Callable[[list[int], str], str]) -> list[str]:
    found: dict[str, list[int]] = {}
    for view in views:
        found.setdefault(chain_end(case, view).does, []).append(view.rank)
    largest = sorted(found.items(), key=lambda item: -len(item[1]))[:MOST_PARTS]
    return [told(ranks, does) for does, ranks in largest]
