"""Process ids of other pid namespaces as this one's: in a container a rank calls itself by a number of its own.

The kernel numbers a process once in each namespace that it can be seen from, and tells all of them in `NSpid` of
/proc/PID/status, ours first. A process that cannot be seen from here has no number here; its own would be a stranger's.
Source: pid_namespaces(7), proc(5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hangwatch.model import Reading
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import PROC, pid_namespace


@dataclass(frozen=True)
class Found:
    """A process of another namespace: its number here, and whether it can be seen from here at all.

    `pid` is None for one that has no number here: it has ended if it would be `visible`, and else nothing is known.
    """

    pid: int | None
    visible: bool


@dataclass
class Pids:
    """Finds the processes of other pid namespaces; those that were found stay known after their end."""

    proc: Path = PROC
    own: int = field(default_factory=pid_namespace)
    namespace_of: Callable[[str], int] = pid_namespace

    def __post_init__(self) -> None:
        self._known: dict[tuple[int, int, int], int] = {}
        self._seen: set[int] = set()  # namespaces with processes that can be seen from here

    def is_foreign(self, namespace: int) -> bool:
        """Whether pids of a namespace (0: not known) mean others here."""
        return namespace not in (0, self.own) and self.own != 0

    def find(self, namespace: int, pid: int, ticks: int) -> Found:
        """The process with number `pid` in `namespace` that started `ticks` clock ticks after boot."""
        key = (namespace, pid, ticks)
        if key not in self._known:
            self._search(namespace)
        found = self._known.get(key)
        return Found(found, found is not None or namespace in self._seen)

    def _search(self, namespace: int) -> None:
        for pid in procfs.pids(self.proc):
            numbers = _numbers(pid, self.proc)
            if len(numbers) < 2 or self.namespace_of(str(pid)) != namespace:
                continue
            self._seen.add(namespace)
            stat = procfs.stat_of(pid, self.proc)
            if stat is not None:
                self._known[namespace, numbers[-1], stat.ticks] = pid

    def translated(self, reading: Reading, namespace: int, ticks: int) -> tuple[Reading, Found]:
        """A reading whose pids are of `namespace`, with those of this one; what has none here is left out.

        Threads are numbered by their namespace too, and the kernel does not tell their numbers here.
        """
        found = self.find(namespace, reading.identity.pid, ticks)
        inside = {pid: here for (where, pid, _), here in self._known.items() if where == namespace}
        loaders = tuple(
            replace(loader, worker_pids=tuple(inside[pid] for pid in loader.worker_pids if pid in inside))
            for loader in reading.loaders
        )
        identity = replace(reading.identity, pid=found.pid or reading.identity.pid)
        return replace(reading, identity=identity, loaders=loaders, lasting_threads=None), found


def _numbers(pid: int, proc: Path) -> tuple[int, ...]:
    """The numbers of a process in its namespaces, from ours to its own; () where it is gone."""
    try:
        for line in procfs.read_text(proc / str(pid) / "status").splitlines():
            if line.startswith("NSpid:"):
                return tuple(int(number) for number in line.split()[1:])
    except (OSError, ValueError):
        pass
    return ()
