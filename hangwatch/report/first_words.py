"""The line that a terminal shows while a job stands still and nothing is proven: facts, and when they are reported.

It says which ranks wait, where, for which ranks, and what those do. It is no alarm, and it names no cause: a cause is
for the verdict, which has to bear it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hangwatch.facts.case import Case
from hangwatch.facts.processes.data_loading import Feeding, Worker
from hangwatch.facts.processes.own_code import how_stuck
from hangwatch.facts.start.arrivals import Arrivals
from hangwatch.judge.patience import in_first_step
from hangwatch.launchers import TORCH_PROGRAMS
from hangwatch.model import Phase, Snapshot
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import CALLED, Doing, Within
from hangwatch.words import at, listed, verb
from hangwatch.words import error as error_words

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
    return bool(free) and all(_stage(view) and (view.works or after_s is None) for view in free)


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
        found.setdefault(_does(case, view), []).append(view.rank)
    largest = sorted(found.items(), key=lambda item: -len(item[1]))[:MOST_PARTS]
    return [told(ranks, does) for does, ranks in largest]


def _does(case: Case, view: RankView) -> str:
    """What a rank does that waits for no other rank, as a predicate."""
    if ended := _ended(view):
        return ended
    feeding = Feeding(view)
    if feeding.waits and (feeding.dead or feeding.suspects):
        return _waits_for_worker(feeding)
    place, stage = at(view.where), _stage(view)
    process = view.evidence.process
    if stage:
        moved = (process.io_delta_bytes or 0) if process is not None else 0
        bytes_moved = f", {words.size(moved)} in the last second" if stage.endswith("checkpoint") else ""
        return f"{stage}{place}{bytes_moved if moved or not view.works else ''}"
    if process is not None and process.state == "D":
        return f"is in uninterruptible sleep (state D){_in(view)}"
    if case.waits.shows_device_wait(view):
        return f"waits for its device{place}"
    return f"waits for a batch{place}" if view.now.doing is Doing.LOADER else _stands(view)


def _ended(view: RankView) -> str:
    process = view.evidence.process
    if view.raised:
        return f"has raised {error_words(view.exception)}"
    if view.dead:
        code = process.exit_code if process is not None else None
        return "has ended" if code is None else f"has ended (exit code {code})"
    if view.stopped:
        return f"is stopped (state {view.state})"
    return f"has left its training{at(view.where)}" if view.over else ""


def _stands(view: RankView) -> str:
    """In the program's own code, or in something that the frames do not show."""
    if view.now.doing is Doing.NOTHING:
        return "shows no stack"
    if view.busy:
        return f"computes{_in(view)}"
    if view.in_kernel is not None and "sleep" in (view.in_kernel.system_call or ""):
        return f"sleeps{_in(view)}"  # time.sleep has no frame of its own
    return f"{how_stuck(view).removeprefix('it ')}{_in(view)}"


def _in(view: RankView) -> str:
    where = view.where
    return f" in {where.function}{at(where)}" if where is not None else ""


def _stage(view: RankView) -> str:
    """A stage that is known to be long, as a predicate."""
    now = view.now
    if now.doing is Doing.CHECKPOINT or Within.CHECKPOINT in now.within:
        return "reads or writes a checkpoint"
    if now.doing is Doing.COMPILE or Within.COMPILE in now.within:
        return "compiles"
    if now.doing is Doing.RENDEZVOUS or Within.RENDEZVOUS in now.within:
        return "is in init_process_group"
    if view.phase is Phase.EVAL and view.works:
        return "evaluates"
    return "imports modules" if Within.IMPORT in now.within else ""


def _waits_for_worker(feeding: Feeding) -> str:
    """`waits (train.py:60) for loader worker 0, which is in uninterruptible sleep (train.py:83)`"""
    workers = feeding.dead or feeding.suspects
    first = workers[0]
    more = f" and {len(workers) - 1} more" if len(workers) > 1 else ""
    return f"waits{at(feeding.view.where)} for loader worker {first.name}{more}, which {_worker_does(first)}"


def _worker_does(worker: Worker) -> str:
    if worker.dead:
        return f"has ended: {worker.ended}"
    how = worker.how_frozen if worker.frozen else worker.how_stuck.removeprefix("it ")
    return f"{how} in {worker.place}"
