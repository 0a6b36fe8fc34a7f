"""The roles of the processes of a job: workers and children of ranks, launchers above them, orphans beside them.

Source: one `Table` of /proc, command lines, and the environment that a process was started with. What vanishes while
it is looked at is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from hangwatch.launchers import PROGRAMS, TORCH_MODULES
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import Table

RUN_ID = "HANGWATCH_RUN_ID"  # set by `hangwatch run` for everything below it

_LAUNCHER_TEXTS = (*TORCH_MODULES, *(f"{module.replace('.', '/')}.py" for module in TORCH_MODULES))
_COMPILERS = re.compile(r"(cc1(plus)?|ptxas|nvcc|cicc|cudafe\+\+|ninja|clang|as|ld|(.*-)?(g\+\+|gcc|c\+\+)(-\d+)?)")
_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "fish", "ksh", "tmux", "screen", "sshd", "login", "su", "sudo"])


@dataclass(frozen=True)
class Member:
    """A process of the job that is no rank. `rank` is the rank that it belongs to, where it belongs to one."""

    pid: int
    role: str  # as in records.ProcessEvidence
    rank: int | None = None


@dataclass(frozen=True)
class Candidate:
    """A process that its environment calls a rank, whether it has a board or not."""

    pid: int
    rank: int
    world_size: int | None
    started_at: float
    environment: Mapping[str, str]


def kind_of(pid: int, table: Table) -> str | None:
    """What a process is by its name and command line alone: "launcher", "helper", "compile-worker", "loader-worker".

    None for anything else. A launcher that is a user's own script cannot be told this way.
    """
    stat = table.stats.get(pid)
    if stat is None:
        return None
    if stat.name == "pt_data_worker":  # torch names them so since 2.6
        return "loader-worker"
    arguments = procfs.command_line(pid, table.proc)
    if _is_fork_server(arguments) and _is_fork_server(procfs.command_line(stat.parent, table.proc)):
        return None  # forked by a fork server, whose command line it keeps
    return kind_of_command(arguments)


def _is_fork_server(arguments: tuple[str, ...]) -> bool:
    return any("multiprocessing.forkserver" in argument for argument in arguments)


def kind_of_command(arguments: tuple[str, ...]) -> str | None:
    """What a command line alone says."""
    names = [PurePosixPath(argument).name for argument in arguments[:3]]
    text = " ".join(arguments[:8])
    if "multiprocessing.resource_tracker" in text or _is_fork_server(arguments):
        return "helper"
    if names and names[0] == "torch_shm_manager":
        return "helper"
    if "compile_worker" in text or (names and _COMPILERS.fullmatch(names[0])):
        return "compile-worker"
    if PROGRAMS.intersection(names) or any(known in text for known in _LAUNCHER_TEXTS):
        return "launcher"
    return None


def members(
    ranks: Mapping[int, int | None],
    table: Table,
    *,
    root: int | None = None,
    run_id: str = "",
    ourselves: frozenset[int] = frozenset(),
) -> tuple[Member, ...]:
    """The processes of the job that are no ranks.

    Args:
        ranks: pid to rank number, of ranks living and dead.
        table: all processes.
        root: the process that `hangwatch run` started; None where the ranks attached by themselves.
        run_id: what RUN_ID holds in the job's processes, "" for none.
        ourselves: processes of hangwatch, which belong to no rank.
    """
    found: dict[int, Member] = {}
    for pid, rank in ranks.items():
        for child in own_descendants(pid, ranks, table):
            found[child] = Member(child, kind_of(child, table) or "child", rank)
    for pid in _launchers(ranks, table, root):
        found.setdefault(pid, Member(pid, "launcher"))
    for pid in table.descendants(root) if root else ():
        found.setdefault(pid, Member(pid, kind_of(pid, table) or "job"))
    for pid, rank in _orphans(ranks, table, root, run_id).items():
        found.setdefault(pid, Member(pid, "orphan", rank))
    return tuple(member for pid, member in found.items() if pid not in ranks and pid not in ourselves)


def candidates(table: Table, *, root: int | None = None, run_id: str = "") -> tuple[Candidate, ...]:
    """Processes with RANK in their environment, below `root` or marked with `run_id`; by rank, then by age.

    Workers and children of a rank inherit its RANK: only the topmost process with it counts.
    """
    pids = table.descendants(root) if root else tuple(table.stats)
    environments = {pid: environment for pid in pids if (environment := _environment(pid, table))}
    found = []
    for pid, environment in environments.items():
        above = environments.get(table.stats[pid].parent, {})
        marked = root is not None or (run_id != "" and environment.get(RUN_ID) == run_id)
        if marked and environment.get("RANK", "").isdigit() and above.get("RANK") != environment["RANK"]:
            found.append(_candidate(pid, environment, table))
    return tuple(sorted(found, key=lambda each: (each.rank, each.started_at)))


def _candidate(pid: int, environment: Mapping[str, str], table: Table) -> Candidate:
    world_size = environment.get("WORLD_SIZE", "")
    return Candidate(
        pid=pid,
        rank=int(environment["RANK"]),
        world_size=int(world_size) if world_size.isdigit() else None,
        started_at=procfs.started_at(table.stats[pid], table.proc),
        environment=environment,
    )


def own_descendants(pid: int, ranks: Mapping[int, int | None], table: Table) -> tuple[int, ...]:
    """Descendants of a rank that belong to no other rank below it."""
    others = {
        lower for child in table.descendants(pid) if child in ranks for lower in (child, *table.descendants(child))
    }
    return tuple(child for child in table.descendants(pid) if child not in others)


def _launchers(ranks: Mapping[int, int | None], table: Table, root: int | None) -> tuple[int, ...]:
    """Processes above the ranks: all of them up to `root`; else direct parents and those whose command says so."""
    found: dict[int, None] = {root: None} if root and root in table.stats else {}
    for pid in ranks:
        ancestors = table.ancestors(pid)
        if root in ancestors:
            found.update(dict.fromkeys(ancestors[: ancestors.index(root)]))
            continue
        found.update(dict.fromkeys(above for above in ancestors if kind_of(above, table) == "launcher"))
        if ancestors and table.stats[ancestors[0]].name not in _SHELLS:
            found[ancestors[0]] = None
    return tuple(found)


def _orphans(ranks: Mapping[int, int | None], table: Table, root: int | None, run_id: str) -> dict[int, int | None]:
    """Processes whose rank or launcher is gone: marked with the run's id, or in a group or session that it led.

    The session of a terminal is not taken for the job's: only groups count whose leader is a rank or the root.
    """
    leaders = {**dict.fromkeys((root,) if root else ()), **ranks}
    below = {lower for leader in leaders if leader in table.stats for lower in (leader, *table.descendants(leader))}
    found: dict[int, int | None] = {}
    for pid, stat in table.stats.items():
        if pid in below:
            continue
        leader = stat.group if stat.group in leaders else stat.session if stat.session in leaders else None
        if leader is not None:
            found[pid] = leaders[leader]
        elif run_id and (environment := _environment(pid, table)) and environment.get(RUN_ID) == run_id:
            found[pid] = int(environment["RANK"]) if environment.get("RANK", "").isdigit() else None
    return found


def _environment(pid: int, table: Table) -> Mapping[str, str]:
    try:
        return procfs.environment(pid, table.proc)
    except OSError:
        return {}
