"""Contradictions between the ranks' own settings and what their scheduler says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import Arrivals
from hangwatch.facts.start.connections import is_lost
from hangwatch.facts.start.launch import (
    JOB_NODES,
    Scheduler,
    Task,
    first_number,
    is_loopback,
    started_by_scheduler,
    tasks,
)
from hangwatch.launchers import number
from hangwatch.rules.start.launch_mismatch.contradiction import Contradiction

_OPTIONS = {
    "srun": "#SBATCH --ntasks={size} (or --nodes and --ntasks-per-node whose product is {size})",
    "mpirun": "mpirun -np {size}",
    "mpiexec": "mpiexec -n {size}",
}


_OTHER_STEPS = ("SLURM_PTY", "SLURM_HET_", "SLURM_PACK_")


def _direct(case: Case) -> tuple[Scheduler | None, list[Task]]:
    """The scheduler that started the ranks itself, with these ranks; None where torchrun or a script started them."""
    found = [each for each in tasks(case) if not each.elastic]
    scheduler = started_by_scheduler(found)
    return scheduler, found if scheduler is not None else []


def one_rank_for_all(case: Case) -> Contradiction | None:
    """The scheduler has numbered its tasks, and several of them have the same RANK."""
    scheduler, started = _direct(case)
    by_rank: dict[int, list[Task]] = defaultdict(list)
    for each in sorted(started, key=lambda each: number(each.settings, scheduler.task) or 0 if scheduler else 0):
        by_rank[each.rank].append(each)
    same = max(by_rank.values(), key=len, default=[])
    if scheduler is None or len(same) < 2:
        return None
    rank, sizes = same[0].rank, sorted({each.world_size for each in same if each.world_size is not None})
    size = "SLURM_NTASKS" if scheduler.program == "srun" else scheduler.tasks[0]
    shown = words.listed(str(number(each.settings, scheduler.task)) for each in same)
    every = "all of them have" if len(same) == len(started) else f"{len(same)} of them have"
    worlds = f" and WORLD_SIZE={sizes[0]}" if len(sizes) == 1 else ""
    return Contradiction(
        f"{scheduler.program} started {words.plural(len(started), 'task')}, and {every} RANK={rank}{worlds}:"
        f" {'each begins a world of its own' if sizes == [1] else 'the others of its world never come'}",
        f"export RANK=${scheduler.task} WORLD_SIZE=${size} in each task (inside of `{scheduler.program} bash -c '...'`,"
        " not before it), or start one torchrun on each node",
        (
            f"the tasks with {scheduler.task} {shown} have RANK={rank}: {words.listed(_pids(same))}",
            *_sizes(scheduler, started),
        ),
        complete=True,
    )


def other_world_size(case: Case) -> Contradiction | None:
    """The scheduler starts another number of tasks than WORLD_SIZE says."""
    scheduler, started = _direct(case)
    if scheduler is None:
        return None
    for each in started:
        said = first_number(each.settings, scheduler.tasks)
        if said is None or each.world_size in (None, said[1]) or not _is_step(scheduler, said[1], each, started):
            continue
        name, count = said
        size, program, own = each.world_size, scheduler.program, number(each.settings, scheduler.task)
        seen = f"{words.plural(len(started), 'task')} of {program} {words.verb(len(started), 'is', 'are')} seen"
        line = f"rank {each.rank} (pid {each.pid}) has WORLD_SIZE={size}, {name}={count} and {scheduler.task}={own}"
        return Contradiction(
            f"WORLD_SIZE is {size}, and {program} starts {words.plural(count, 'task')} ({name}={count})",
            f"{_OPTIONS[program].format(size=size)}, or WORLD_SIZE=${name}",
            (line, seen),
            complete=len(started) >= count > 1 and all(other.alive for other in started),
        )
    return None


def _is_step(scheduler: Scheduler, count: int, task: Task, started: list[Task]) -> bool:
    """The tasks that are seen are those that the scheduler's number counts.

    The script of sbatch gets the number of all tasks and is only the first one; a shell of `srun --pty` starts what its
    user types; a script may start a step for each node; the parts of a heterogeneous job have numbers of their own.
    """
    if any(each.rank != number(each.settings, scheduler.task) for each in started):
        return False
    if scheduler.program != "srun":
        return True
    if any(name.startswith(_OTHER_STEPS) for name in task.settings):
        return False
    if count == 1 and (number(task.settings, JOB_NODES) or 1) > 1:
        return False
    return len(started) > 1 or "SLURM_STEP_ID" in task.settings


def uneven_nodes(case: Case) -> Contradiction | None:
    """The nodes start different numbers of ranks, which WORLD_SIZE is not the sum of."""
    nodes: dict[tuple[str, int | None], list[Task]] = defaultdict(list)
    for each in tasks(case):
        if not each.elastic and number(each.settings, "LOCAL_WORLD_SIZE") is not None:
            nodes[each.host, number(each.settings, "NODE_RANK")].append(each)
    local = {node: number(found[0].settings, "LOCAL_WORLD_SIZE") or 0 for node, found in nodes.items()}
    sizes = {each.world_size for found in nodes.values() for each in found}
    if len(set(local.values())) < 2 or len(sizes) != 1 or sum(local.values()) == next(iter(sizes)):
        return None
    size = next(iter(sizes)) or 0
    told = words.listed(f"{_node(*node)} starts {words.plural(count, 'rank')}" for node, count in local.items())
    return Contradiction(
        f"WORLD_SIZE is {size}, and the nodes start {sum(local.values())} ranks together: {told}",
        "give every node the same --nproc-per-node, and WORLD_SIZE = nodes x that number",
        tuple(
            f"{_node(*node)}: LOCAL_WORLD_SIZE={local[node]}, ranks {words.ranges(each.rank for each in found)}"
            for node, found in nodes.items()
        ),
        complete=all(len(found) >= local[node] for node, found in nodes.items()),
    )


def _node(host: str, index: int | None) -> str:
    return f"node {index} ({host})" if index is not None else host


def local_master(case: Case) -> Contradiction | None:
    """Ranks of several machines meet at an address that is each machine's own."""
    waiting = {view.pid: view for view in Arrivals(case).waiting}
    found = [each for each in tasks(case) if each.pid in waiting and is_loopback(each.settings.get("MASTER_ADDR", ""))]
    hosts = sorted({each.host for each in found})
    lost = [each for each in found if is_lost(waiting[each.pid])]
    if len(hosts) < 2 or len(found) < len(waiting) or not lost:
        return None
    address = found[0].settings["MASTER_ADDR"]
    return Contradiction(
        f"MASTER_ADDR is {address} on {len(hosts)} machines ({words.listed(hosts)}), where each finds only itself",
        "set MASTER_ADDR to the name of the machine of rank 0, e.g. $(scontrol show hostnames $SLURM_JOB_NODELIST |"
        " head -n 1)",
        tuple(
            f"rank {each.rank} (pid {each.pid}) on {each.host} has MASTER_ADDR={address}"
            for each in found[: words.SHOWN]
        )
        + tuple(f"rank {each.rank} is not connected to it" for each in lost[: words.SHOWN]),
        complete=True,
    )


def _pids(found: Iterable[Task]) -> list[str]:
    return [f"pid {each.pid}" for each in found]


def _sizes(scheduler: Scheduler, started: list[Task]) -> list[str]:
    said = first_number(started[0].settings, scheduler.tasks)
    return [f"{said[0]} is {said[1]}"] if said is not None else []
