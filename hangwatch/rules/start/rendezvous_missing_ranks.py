"""Ranks that never come to init_process_group, or come late."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import Arrivals, address, host_of, launcher_of
from hangwatch.facts.start.given_size import given_size, launchers_size, size_sentence
from hangwatch.model import Certainty, Culprit, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

_BY_SRUN = (
    "start the command with srun, which starts one process for each task; in a shell of an allocation whose variables"
    " the job should not take, unset SLURM_NTASKS (Lightning: SLURM_JOB_NAME=interactive)"
)


def missing_ranks(case: Case) -> Finding | None:
    """Ranks wait for others for which no process was ever seen."""
    arrivals = Arrivals(case)
    absent, waiting = arrivals.absent, [view.rank for view in arrivals.waiting]
    if not absent or not waiting or arrivals.late or arrivals.unborn:
        return None
    longest = max(arrivals.waited(view) for view in arrivals.waiting)
    closed = arrivals.no_other_rank_can_join
    return Finding(
        "rendezvous-missing-ranks",
        Certainty.PROVEN if closed else Certainty.LIKELY,
        f"{case.name(absent, capital=True)} {_how_many(case, arrivals)}; {case.wait_words(waiting)} in"
        f" init_process_group{words.at(arrivals.waiting[0].where)}.",
        fix=_make_equal(case, arrivals.waiting[0]),
        culprits=tuple(Culprit(rank, host=host_of(case)) for rank in absent[:64]),
        victims=tuple(waiting),
        evidence=tuple(_missing_evidence(case, arrivals, longest)),
        status=Status.HUNG if closed or longest > arrivals.patience_s else Status.WAITING,
        dead="all ranks must be of this machine, and their launcher starts no more" if closed else "",
        held=tuple(waiting),
    )


def _how_many(case: Case, arrivals: Arrivals) -> str:
    came = len(case.ranks)
    of = f"{came} of {case.size} ranks"
    have = words.verb(len(arrivals.absent), "has", "have")
    if arrivals.newcomers:
        return f"{have} not come yet: {of} {words.verb(came, 'has said its number', 'have said their numbers')}"
    if arrivals.commands:
        return f"{have} not come yet: {of} {words.verb(came, 'was', 'were')} started, and their launcher runs a command"
    return f"never came: {of} {words.verb(came, 'was', 'were')} started{_by_whom(case)}"


def _by_whom(case: Case) -> str:
    return {"spawn": " by mp.spawn", "torchrun": " by torchrun"}.get(launcher_of(case), "")


def _make_equal(case: Case, first: RankView) -> str:
    came = len(case.ranks)
    if launcher_of(case) == "spawn":
        return f"mp.spawn(..., nprocs={case.size}), or init_process_group(..., world_size={came})"
    size, by_launcher = given_size(case, first.where), launchers_size(first)
    if size or by_launcher not in (None, case.size):
        leave = ", or leave that argument out: then WORLD_SIZE counts" if size and by_launcher == came else ""
        line = words.at(first.where) if size else ""
        return (
            f"give init_process_group{line} world_size={came}, as many processes are started, in place of"
            f" {size or case.size}{leave}; or start {case.size}"
        )
    return _BY_SRUN if _by_slurm(case) else ""


def _by_slurm(case: Case) -> bool:
    """The world size is the number of tasks for which Slurm has made room, which srun alone starts."""
    process = next((view.evidence.process for view in case), None)
    return process is not None and process.environment.get("SLURM_NTASKS") == str(case.size)


def _missing_evidence(case: Case, arrivals: Arrivals, longest: float) -> Iterable[str]:
    here = ", ".join(f"rank {view.rank} is pid {view.pid}" for view in list(case)[: words.SHOWN])
    if _by_slurm(case):
        yield f"the world size is Slurm's number of tasks, SLURM_NTASKS={case.size}"
    yield f"the world size is {case.size}, and there are processes for {len(case.ranks)} ranks: {here}"
    if told := size_sentence(case, arrivals.waiting[0]):
        yield told
    sizes = {view.reading.identity.world_size for view in case if view.reading is not None}
    if len(sizes - {None}) > 1:
        yield f"the ranks do not agree about WORLD_SIZE: {words.listed(str(size) for size in sorted(sizes - {None}))}"  # type: ignore[type-var]
    yield f"they have waited for {words.duration(longest)} at most"
    for each in arrivals.newcomers[: words.SHOWN]:
        above = f", started by rank {each.rank}," if each.rank is not None else ""
        yield f"pid {each.facts.pid}{above} is no rank yet and may become one"
    for each in arrivals.commands[: words.SHOWN]:
        yield f"their launcher may start more ranks after pid {each.facts.pid} (`{words.command(each.facts.command)}`)"
    if arrivals.no_other_rank_can_join:
        addr, port = address(arrivals.waiting[0])
        yield f"all ranks must be of this machine ({addr}:{port}), and their launcher only waits for their end"
