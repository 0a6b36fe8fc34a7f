"""`--on-hang abort`: end the ranks of a hung job so that its launcher sees a failure and can restart it.

Only after the report is safe, only processes of the job, and the ranks before anybody else: a launcher that is killed
first leaves orphans. Stopped processes are continued, for a stopped process does not hear SIGTERM. Who has not gone
after the grace is killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from hangwatch_agent.capture.procfs import Table
from hangwatch_agent.roster import Standing, process_state, start_ticks


def end_ranks(
    standings: Sequence[Standing],
    culprits: Iterable[int],
    grace_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[int]:
    """SIGTERM for every living rank, the culprits (pids) first; SIGKILL for who is left after `grace_s` seconds.

    Returns the pids that had to be killed.
    """
    blamed = set(culprits)
    targets = sorted((each for each in standings if each.alive), key=lambda each: each.pid not in blamed)
    for each in targets:
        _signal(each, signal.SIGTERM)
        _signal(each, signal.SIGCONT)
    deadline = clock() + grace_s
    while clock() < deadline and any(_lives(each) for each in targets):
        sleep(0.1)
    stubborn = [each for each in targets if _lives(each)]
    for each in stubborn:
        _signal(each, signal.SIGKILL)
    return [each.pid for each in stubborn]


def _lives(standing: Standing) -> bool:
    return process_state(standing.pid, start_ticks(standing.path)) not in ("X", "Z")


def _signal(standing: Standing, number: signal.Signals) -> None:
    if _lives(standing):  # never a stranger who was given the pid since
        with suppress(ProcessLookupError, PermissionError):
            os.kill(standing.pid, number)


def end_below(root: int, grace_s: float) -> None:
    """Kill all processes below `root`, which then ends by itself, or is killed after `grace_s` seconds.

    The tree is read before the first signal, for orphans lose the way back to their parent. Launchers go first, so
    that none of them starts its ranks anew or fills the terminal with tracebacks about the rest.
    """
    table = Table.read()
    tree = {pid: table.stats[pid].ticks for pid in table.descendants(root) if pid in table.stats}
    for pid, ticks in tree.items():
        _kill(pid, ticks)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and process_state(root, 0) not in ("X", "Z"):
        time.sleep(0.05)
    _kill(root, 0)


def _kill(pid: int, ticks: int) -> None:
    if process_state(pid, ticks) not in ("X", "Z"):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
