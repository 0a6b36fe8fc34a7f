"""What the process that holds a lock is to the job: one of its ranks, a child of one, a leftover, a stranger."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hangwatch.health.gpu_leftover_process import INIT, LEFT
from hangwatch.model import LockFile, LockOwner
from hangwatch_agent.capture.proc.tree import Member, own_descendants
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import Table
from hangwatch_agent.shared.redact import redact_command


@dataclass(frozen=True)
class Owners:
    """The processes of the job by pid, and all processes of the machine at two moments."""

    ranks: Mapping[int, int | None]
    members: Mapping[int, Member]
    before: Table
    now: Table

    def known(self, lock: LockFile) -> LockFile:
        """The lock with what can be said of its holder."""
        return lock if lock.owner_pid is None else replace(lock, owner=self._owner(lock.owner_pid))

    def _owner(self, pid: int) -> LockOwner:
        member = self.members.get(pid)
        own = self.ranks.get(pid) if pid in self.ranks else member.rank if member else None
        stat = self.now.stats.get(pid)
        command = redact_command(procfs.command_line(pid, self.now.proc))
        return LockOwner(
            pid,
            role="rank" if pid in self.ranks else member.role if member else self._outside(pid),
            rank=own,
            command=command or (stat.name if stat else ""),
            started_at=procfs.started_at(stat, self.now.proc) if stat else None,
            cpu_delta_s=self._cpu_delta_s(pid),
        )

    def _cpu_delta_s(self, pid: int) -> float | None:
        """Of the process and of what it has started but ranks: a holder may wait for a compiler of its own."""
        if pid not in self.now.stats or pid not in self.before.stats:
            return None
        tree = (pid, *own_descendants(pid, self.ranks, self.now))
        began = (self.before.stats[each].cpu_s if each in self.before.stats else 0.0 for each in tree)
        used = (self.now.stats[each].cpu_s - before for each, before in zip(tree, began, strict=True))
        return sum(max(each, 0.0) for each in used)

    def _outside(self, pid: int) -> str:
        """A process beside the job may be there on purpose: only a rank whose launcher is gone was left behind.

        An orphan of the job itself falls to `hangwatch run`, which takes in what its command leaves behind.
        """
        parent = self.now.stats[pid].parent if pid in self.now.stats else None
        if parent == os.getpid():
            return "orphan"
        return "leftover" if parent == INIT and _was_a_rank(pid, self.now.proc) else "stranger"


def _was_a_rank(pid: int, proc: Path) -> bool:
    try:
        environment = procfs.environment(pid, proc)
    except OSError:
        return False
    return any(name in environment for name in LEFT)
