"""What one poll of the watchdog costs, by the number of ranks on the node: `python -m hangwatch_agent.overhead.poll`.

The ranks are boards with full rings that go on by some steps between two polls, written from this process; the look is
the watchdog's own. Prints processor seconds by number of ranks as JSON, the median of some polls.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from hangwatch.health import HealthWatch
from hangwatch.model import Job, Snapshot
from hangwatch.settings import Settings
from hangwatch_agent.board import layout as b
from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.rank import identity
from hangwatch_agent.roster.rank_states import Roster
from hangwatch_agent.watchdog.incidents import Incidents
from hangwatch_agent.watchdog.loop import Watchdog
from hangwatch_agent.watchdog.response import Response

RANKS = (64, 128)
POLLS = 7
STEPS, CALLS_IN_STEP = 5, 4  # between two polls: five steps a second
FIRST_PID = 1 << 20  # of ranks that are no processes


class MadeUpRank:
    """A board that is written as a rank's hooks do it."""

    def __init__(self, folder: Path, rank: int, ranks: int) -> None:
        environment = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
        described = {**identity.describe(environment, job="bench"), "pid": FIRST_PID + rank}
        ticks = identity.start_ticks()
        path = folder / b.board_name(FIRST_PID + rank, ticks)
        self._writer = BoardWriter.create(path, described, start_ticks=ticks)
        self._writer.write("groups", [[0, 0, True, "0", f"0-{ranks - 1}", "default_pg", "gloo"]])
        op, shapes = self._writer.intern("all_reduce"), self._writer.intern([[[1000, 10]], ["Float"]])
        self._call = (op, shapes, 10_000, b.NONE, b.NONE, self._writer.intern([["train.py", 10, "main"]]))
        self._steps = self._seq = 0
        for _ in range(b.STEPS + 1):
            self.step()

    def step(self) -> None:
        """One more step, with its calls."""
        words, number, now = self._writer.words, self._steps, time.monotonic_ns()
        entry = b.STEPS_AT + number % b.STEPS * b.STEP_WORDS
        words[entry + b.S_STEP] = words[entry + b.S_BATCH] = number
        words[entry + b.S_AT], words[entry + b.S_END] = now, entry + b.S_ISSUED + 1
        words[entry + b.S_ISSUED] = self._seq
        words[entry] = words[b.W_STEPS_WRITTEN] = self._steps = number + 1
        for _ in range(CALLS_IN_STEP):
            self._seq += 1
            self._writer.call(0, self._seq, *self._call, number, now)
        words[b.GROUPS_AT + b.G_ISSUED] = words[b.GROUPS_AT + b.G_COMPLETED] = self._seq
        words[b.W_MOVED_AT] = words[b.W_TICKER_AT] = words[b.W_PHASE_AT] = now
        words[b.W_PHASE] = b.STEP


def poll_s(ranks: int, polls: int = POLLS) -> float:
    """Processor seconds of one poll of so many ranks."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:  # noqa: PTH112
        folder = Path(name)
        made = [MadeUpRank(folder, rank, ranks) for rank in range(ranks)]
        watchdog = _watchdog(folder)
        watchdog.poll()
        took = []
        for _ in range(polls):
            for rank in made:
                for _ in range(STEPS):
                    rank.step()
            began = time.process_time()
            watchdog.poll()
            took.append(time.process_time() - began)
        assert len(watchdog.rank_states) == ranks, watchdog.roster.broken
        return statistics.median(took)


def _watchdog(folder: Path) -> Watchdog:
    job = Job("bench", "bench", None)
    incidents = Incidents(str(folder), io.StringIO())
    made = Watchdog(folder, Settings(), job, lambda ranks, sleep: Snapshot(job, 0.0, ()), Response(incidents))
    made.roster = Roster(folder, state_of=lambda pid, ticks: "R")
    made.health = HealthWatch()
    return made


if __name__ == "__main__":
    json.dump({ranks: poll_s(ranks) for ranks in map(int, sys.argv[1:] or RANKS)}, sys.stdout)
    print()
