"""Limits of processes and containers: those that end a job hours later, or hide from hangwatch why."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.doctor.families.telling import named, ok, warn
from hangwatch.doctor.model import Check, Job, RankFacts
from hangwatch.report.words import size

FAMILY = "system"
SHM = 256 << 20  # bytes; Docker gives 64 MiB
OPEN_FILES, PROCESSES = 4096, 4096
LOCKED = 1 << 30


def checks(job: Job) -> Iterator[Check]:
    known = [each for each in job.ranks if each.system.shm_total is not None or each.system.open_files is not None]
    if not known:
        return
    found = [*_shm(known), *_limits(known), *_ptrace(known), *_processors(job, known)]
    yield from found or [
        ok(FAMILY, "limits", "shared memory, open files, processes and tracing rights suffice on all hosts")
    ]


def _shm(known: list[RankFacts]) -> Iterator[Check]:
    small = [each for each in known if each.system.shm_free is not None and each.system.shm_free < SHM]
    if small:
        free, total = small[0].system.shm_free or 0, small[0].system.shm_total or 0
        found = f"/dev/shm of {small[0].host} has {size(free)} free of {size(total)}"
        docker = "docker run --shm-size=8g or --ipc=host; Kubernetes: an emptyDir of medium Memory at /dev/shm"
        advice = docker if small[0].system.container else "remove what fills it: ls -l /dev/shm"
        yield warn(
            FAMILY,
            "shared memory",
            f"{found}: data loaders with workers and NCCL need more",
            advice,
            [e.rank for e in small],
        )


def _limits(known: list[RankFacts]) -> Iterator[Check]:
    few = [each for each in known if each.system.open_files is not None and each.system.open_files < OPEN_FILES]
    if few:
        found = f"only {few[0].system.open_files} open files on {named(e.rank for e in few)}"
        yield warn(
            FAMILY, "open files", found, "ulimit -n 65536 (docker: --ulimit nofile=65536)", [e.rank for e in few]
        )
    low = [each for each in known if each.system.processes is not None and each.system.processes < PROCESSES]
    if low:
        found = f"only {low[0].system.processes} processes and threads on {named(e.rank for e in low)}"
        yield warn(FAMILY, "processes", found, "ulimit -u 65536", [e.rank for e in low])
    locked = [
        each for each in known
        if each.fabric.ports and each.system.locked_memory is not None and each.system.locked_memory < LOCKED
    ]  # fmt: skip
    if locked:
        who, limit = named(e.rank for e in locked), size(locked[0].system.locked_memory or 0)
        found = f"only {limit} of locked memory on {who}: InfiniBand needs it"
        yield warn(
            FAMILY,
            "locked memory",
            found,
            "ulimit -l unlimited (docker: --ulimit memlock=-1)",
            [e.rank for e in locked],
        )


def _ptrace(known: list[RankFacts]) -> Iterator[Check]:
    barred = [
        each
        for each in known
        if each.system.ptrace_scope >= 2 and not (each.system.can_ptrace and each.system.ptrace_scope < 3)
    ]
    if barred:
        who, scope = named(e.rank for e in barred), barred[0].system.ptrace_scope
        found = f"kernel.yama.ptrace_scope is {scope} on {who}: a hang is explained without stacks"
        yield warn(
            FAMILY,
            "tracing",
            found,
            "CAP_SYS_PTRACE (docker: --cap-add SYS_PTRACE), or scope 1",
            [e.rank for e in barred],
        )


def _processors(job: Job, known: list[RankFacts]) -> Iterator[Check]:
    for host, ranks in job.by_host.items():
        have = ranks[0].system.processors
        threads = sum(
            int(each.environment.get("OMP_NUM_THREADS", "0") or 0)
            for each in ranks
            if each.environment.get("OMP_NUM_THREADS", "0").isdigit()
        )
        if have and (len(ranks) > have or threads > 2 * have):
            wants = f"{threads} OpenMP threads" if threads > 2 * have else f"{len(ranks)} ranks"
            found = f"{host} has {have} processor{'s' if have > 1 else ''} for {wants}"
            yield warn(
                FAMILY, "processors", found, "fewer threads (OMP_NUM_THREADS) or a larger quota: waits look like hangs"
            )
            return
