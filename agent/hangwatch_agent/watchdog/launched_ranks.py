"""The processes started as ranks, whether they ever wrote a board or not: a rank that never came is known by its
absence only.

A process is a rank by its environment when it has a RANK that its parent has not given it as a rank itself. Ranks of
mp.spawn have none: their boards and their launcher's stack show them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from hangwatch.launchers import number
from hangwatch.model import Launched
from hangwatch_agent.capture.proc.process import distributed_settings
from hangwatch_agent.capture.proc.tree import kind_of_command
from hangwatch_agent.shared import procfs, rank_rule
from hangwatch_agent.shared.procfs import Stat, Table
from hangwatch_agent.shared.redact import redact_command

YOUNG_S = 3.0  # a process may still become another program, with another environment
BESIDE_S = 1.0  # starts are known to a second, and a successor may come while its predecessor goes
MOST = 4096  # remembered at a time
Key = tuple[int, int]  # pid and start, for pids are used again


class Deaths(Protocol):
    """When each one ended, and with which code (see `hangwatch_agent.watchdog.deaths`)."""

    ended: dict[Key, float]
    codes: dict[Key, int]

    def watch(self, pid: int, ticks: int = 0) -> None: ...


@dataclass(frozen=True)
class _Seen:
    environment: Mapping[str, str]
    command: tuple[str, ...]
    settled: bool


class LaunchedRanks:
    """Remembers every process below `root` that was started as a rank.

    Call `update` at every poll: it costs a few microseconds for each process that is known already. `elastic` says
    that a launcher such as torchrun is there and has no rank below it that lives.
    """

    def __init__(self, root: int, deaths: Deaths | None = None) -> None:
        self.root = root
        self.elastic = False
        self._deaths = deaths
        self._seen: dict[Key, _Seen] = {}
        self._launched: dict[Key, Launched] = {}
        self._judged: set[Key] = set()

    def update(self, table: Table, now: float) -> None:
        """Take note of processes that have come and gone."""
        living = {(pid, table.stats[pid].ticks): table.stats[pid] for pid in table.descendants(self.root)}
        if self.root in table.stats:
            living[self.root, table.stats[self.root].ticks] = table.stats[self.root]
        self._seen = {key: self._look(key, stat, table, now) for key, stat in living.items()}
        self._judged &= living.keys()
        self._welcome(living, table)
        self._bury(living, now)
        alive = any(each.ended_at is None for each in self._launched.values())
        self.elastic = not alive and any(kind_of_command(seen.command) == "launcher" for seen in self._seen.values())

    def known(self, boards: Collection[int] = ()) -> tuple[Launched, ...]:
        """Those of the newest generation, by rank; of one rank all that live or lived beside them, or the last one.

        Args:
            boards: the pids that have a board.
        """
        newest = max((rank_rule.generation(each.environment) for each in self._launched.values()), default=0)
        current = [each for each in self._launched.values() if rank_rule.generation(each.environment) == newest]
        last = {each.rank: each for each in sorted(current, key=_lived_longest)}
        kept = [each for each in current if each is last[each.rank] or _beside(each, last[each.rank])]
        marked = (replace(each, board=each.pid in boards) for each in kept)
        return tuple(sorted(marked, key=lambda each: (each.rank, each.started_at)))

    def _look(self, key: Key, stat: Stat, table: Table, now: float) -> _Seen:
        known = self._seen.get(key)
        if known is not None and (known.settled or stat.state in "ZX"):
            return known
        settled = now - procfs.started_at(stat, table.proc) > YOUNG_S
        try:
            environment = procfs.environment(stat.pid, table.proc)
        except OSError:  # another user's, or it has ended
            environment = {}
        return _Seen(environment, procfs.command_line(stat.pid, table.proc), settled)

    def _welcome(self, living: Mapping[Key, Stat], table: Table) -> None:
        by_pid = {pid: seen for (pid, _), seen in self._seen.items()}
        for key, stat in living.items():
            seen, above = self._seen[key], by_pid.get(stat.parent)
            if key in self._judged:  # a process that has lost a rank for a parent since is none itself
                continue
            if seen.settled:
                self._judged.add(key)
            rank = _is_rank(stat.pid, seen.environment, above.environment if above else {})
            if not rank or self._left_by_rank(key, stat, seen, table):
                self._launched.pop(key, None)  # it has become something else
                continue
            if key not in self._launched and len(self._launched) < MOST:
                self._launched[key] = _launched(stat, seen, table)
                if self._deaths is not None:
                    self._deaths.watch(*key)

    def _left_by_rank(self, key: Key, stat: Stat, seen: _Seen, table: Table) -> bool:
        """First seen without its parent: a loader worker, forked by a rank that ended before we could look."""
        if key in self._launched or stat.parent not in (1, self.root):
            return False
        started, command = procfs.started_at(stat, table.proc), redact_command(seen.command) or stat.name
        return any(
            str(each.rank) == seen.environment["RANK"]
            and each.command == command
            and each.started_at < started <= self._ended(one, each)
            for one, each in self._launched.items()
        )

    def _ended(self, key: Key, each: Launched) -> float:
        """When it ended; before its start where that is not known."""
        known = self._deaths.ended.get(key) if self._deaths is not None else None
        return known or each.ended_at or 0.0

    def _bury(self, living: Mapping[Key, Stat], now: float) -> None:
        for key, each in self._launched.items():
            stat = living.get(key)
            gone = stat is None or stat.state in "ZX"
            if gone and each.ended_at is None:
                ended = self._deaths.ended.get(key, now) if self._deaths else now
                self._launched[key] = each = replace(each, ended_at=ended)
            if gone and each.exit_code is None:
                code = stat.exit_code if stat else None
                if code is None and self._deaths is not None:
                    code = self._deaths.codes.get(key)
                self._launched[key] = replace(each, exit_code=code)


def _is_rank(pid: int, environment: Mapping[str, str], above: Mapping[str, str]) -> bool:
    rank = rank_rule.own_rank(environment, pid)
    return rank is not None and rank != number(above, "RANK")


def _launched(stat: Stat, seen: _Seen, table: Table) -> Launched:
    return Launched(
        rank=int(seen.environment["RANK"]),
        pid=stat.pid,
        started_at=procfs.started_at(stat, table.proc),
        world_size=number(seen.environment, "WORLD_SIZE"),
        command=redact_command(seen.command) or stat.name,
        environment=distributed_settings(seen.environment),
    )


def _lived_longest(launched: Launched) -> tuple[float, float]:
    return launched.ended_at or float("inf"), launched.started_at


def _beside(each: Launched, last: Launched) -> bool:
    """It lives, or has lived while `last` did."""
    return each.ended_at is None or each.ended_at > last.started_at + BESIDE_S
