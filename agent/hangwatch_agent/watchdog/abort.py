"""`--on-hang abort` and `abort-attempt`: end a hung job, or only the ranks of this attempt.

Only after the report is safe, only processes of the job, and the ranks before their launcher: a launcher that is killed
first leaves orphans. What the ranks have started goes with them, for a loader worker that spins outlives its rank and
holds its memory. Stopped processes are continued, for a stopped process does not handle SIGTERM. Processes that are
left after the grace are killed. A launcher that restarts failed ranks is ended with them by `abort`, and may restart
them after `abort-attempt`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.shared.procfs import TICKS_PER_S, Stat, Table, command_line, process_state
from hangwatch_agent.shared.rank_rule import is_launcher

IDLE_S = 60.0  # without its ranks: a launcher that restarts them begins within seconds
WORKS_S = 1.0  # of processor time in that while: it does something


class _Process(NamedTuple):
    """A process, and its start in clock ticks since boot: never a stranger that was given the pid since."""

    pid: int
    ticks: int

    @property
    def lives(self) -> bool:
        return process_state(self.pid, self.ticks) not in ("X", "Z")

    def send(self, number: signal.Signals) -> None:
        if self.lives:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)


def end_ranks(
    rank_states: Sequence[RankState],
    culprits: Iterable[int],
    grace_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[int]:
    """SIGTERM for every living rank, the culprits (pids) first, then for what they have started.

    Processes left after `grace_s` seconds are killed. Returns the pids that had to be.
    """
    ranks = _ranks(rank_states, culprits)
    targets = [*ranks, *_below(ranks)]  # read before the first signal: orphans lose the way back to their rank
    return _end(targets, grace_s, clock, sleep)


def end_job(
    rank_states: Sequence[RankState],
    culprits: Iterable[int],
    grace_s: float,
    root: int | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[int]:
    """SIGTERM for the ranks and what they have started as `end_ranks` does, then at once for what started them.

    That is the command `root` with all below it that is of its session or above a rank; without `root`, the launchers
    above the ranks. Ranks that are started meanwhile are killed at the end. Returns the pids that had to be killed.
    """
    began = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
    ranks = _ranks(rank_states, culprits)
    below = [*ranks, *_below(ranks)]
    targets = [*below, *_above(root, {each.pid for each in below}, ranks)]
    killed = _end(targets, grace_s, clock, sleep)
    late = _below([each for each in targets if each.pid == root], any_session=True)
    return killed + _end([each for each in late if each.ticks > began], 0.0, clock, sleep)


def _above(root: int | None, known: set[int], ranks: Sequence[_Process]) -> Iterator[_Process]:
    """What has started the ranks, from the ranks up, without us: a rank's launcher before that launcher's own."""
    table = Table.read()
    above = {pid for rank in ranks for pid in table.ancestors(rank.pid)}
    if root is None:
        found = [pid for pid in above if is_launcher(command_line(pid))]
    else:
        session = table.stats[root].session if root in table.stats else None
        tree = (root, *table.descendants(root))
        found = [pid for pid in tree if pid in table.stats and (pid in above or table.stats[pid].session == session)]
    for pid in reversed(found):
        if pid not in known and pid != os.getpid():
            yield _Process(pid, table.stats[pid].ticks)


def _ranks(rank_states: Sequence[RankState], culprits: Iterable[int]) -> list[_Process]:
    blamed = set(culprits)
    ranks = [_Process(each.pid, each.ticks) for each in rank_states if each.alive and each.visible]
    return sorted(ranks, key=lambda each: each.pid not in blamed)


def _end(
    targets: Sequence[_Process], grace_s: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> list[int]:
    """SIGTERM, and SIGKILL for processes left after the grace. Returns the pids that had to be killed."""
    for each in targets:
        each.send(signal.SIGTERM)
        each.send(signal.SIGCONT)
    deadline = clock() + grace_s
    while clock() < deadline and any(each.lives for each in targets):
        sleep(0.1)
    stubborn = [each for each in targets if each.lives]
    for each in stubborn:
        each.send(signal.SIGKILL)
    return [each.pid for each in stubborn]


def _below(ranks: Sequence[_Process], *, any_session: bool = False) -> Iterator[_Process]:
    """What the ranks have started and that is no rank, without those that made a session of their own.

    Those mean to outlive their parent, such as a logger that still uploads what it has. With `any_session` they too.
    """
    table = Table.read()
    seen = {each.pid for each in ranks}
    for rank in filter(lambda each: each.lives, ranks):
        session = table.stats[rank.pid].session if rank.pid in table.stats else None
        for pid in table.descendants(rank.pid):
            stat = table.stats.get(pid)
            if pid not in seen and stat is not None and (any_session or stat.session == session):
                seen.add(pid)
                yield _Process(pid, stat.ticks)


def end_idle_command(
    root: int,
    grace_s: float,
    *,
    patience_s: float = IDLE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """End the command `root` if it lives on without its ranks, and does nothing for `patience_s` seconds.

    It may wait for what a rank can no longer give, such as a result that is read after join(). Left alone is one that
    works, or that has started a process: it restarts its ranks, or has more to do. torchrun ends by itself or waits for
    other nodes. Returns whether it was ended.
    """
    top, before = _Process(root, 0), _tree(root)
    deadline, looks, at_work = clock() + patience_s, 0, 0
    while clock() < deadline:
        now = _tree(root)
        looks, at_work = looks + 1, at_work + any(each.state == "R" for each in now.values())
        if not top.lives or now.keys() - before.keys():
            return False
        sleep(1.0)
    after = _tree(root)
    used = sum(each.cpu_s for each in after.values()) - sum(each.cpu_s for each in before.values())
    works = used > WORKS_S or 2 * at_work > looks  # what waits for a processor, on a machine with none to spare, does
    if works or any(is_launcher(command_line(pid)) for pid in after):
        return False
    table = Table.read()
    _end([_Process(pid, table.stats[pid].ticks) for pid in after if pid in table.stats], grace_s, clock, sleep)
    return True


def _tree(root: int) -> dict[int, Stat]:
    """The living processes from `root` down."""
    table = Table.read()
    pids = (root, *table.descendants(root))
    return {pid: table.stats[pid] for pid in pids if pid in table.stats and table.stats[pid].state not in "XZ"}


def end_below(root: int, grace_s: float) -> None:
    """Kill all processes below `root`, which then ends by itself, or is killed after `grace_s` seconds.

    The tree is read before the first signal, for orphans lose the way back to their parent. Launchers go first, so
    that none of them starts its ranks anew or fills the terminal with tracebacks about the rest.
    """
    table = Table.read()
    for pid in table.descendants(root):
        if pid in table.stats:
            _Process(pid, table.stats[pid].ticks).send(signal.SIGKILL)
    deadline = time.monotonic() + grace_s
    top = _Process(root, 0)
    while time.monotonic() < deadline and top.lives:
        time.sleep(0.05)
    top.send(signal.SIGKILL)
