"""Ranks of a job within the job: an evaluation, for example, that a rank runs in a process of its own.

Such a process has a board in the same folder, for it inherits the environment. It is a child of that rank, and the
rank's wait for it is told by what the child does; taken for a rank of the job it would stand in that rank's place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.shared import procfs

_OF_A_JOB = ("MASTER_ADDR", "MASTER_PORT")


class Nested:
    """Knows the boards of processes below a rank, each looked at once, when it is first seen alive."""

    def __init__(self, above: Callable[[int], tuple[int, ...]] = procfs.ancestors_of) -> None:
        self._above = above
        self._judged: dict[Path, bool] = {}

    def without(self, rank_states: Iterable[RankState]) -> tuple[RankState, ...]:
        """`rank_states` without those of a job within the job."""
        known = tuple(rank_states)
        by_pid = {each.pid: each for each in known if each.alive}
        for each in known:
            if each.alive and each.path not in self._judged:
                above = (by_pid[pid] for pid in self._above(each.pid) if pid in by_pid)
                self._judged[each.path] = any(_starts_its_own(rank, each) for rank in above)
        return tuple(each for each in known if not self._judged.get(each.path, False))


def _starts_its_own(above: RankState, below: RankState) -> bool:
    """`above` is in process groups, and `below` claims its rank, or meets elsewhere.

    Launchers that are a rank themselves (Lightning's) start the others before, with ranks of their own.
    """
    mine, theirs = (each.reading.identity.environment for each in (above, below))
    elsewhere = any(name in theirs and mine.get(name) != theirs[name] for name in _OF_A_JOB)
    return bool(above.reading.heads) and (above.rank == below.rank or elsewhere)
