"""What a capture is asked for and what it works with, as plain data: tests and the watchdog fill them in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hangwatch.model import (
    CallSite,
    CaptureNote,
    Excerpt,
    NodeFacts,
    ProcessEvidence,
    RankEvidence,
    Reading,
    StoreKey,
    Switch,
)
from hangwatch_agent.board import file_name
from hangwatch_agent.capture.gpu import Gpus
from hangwatch_agent.capture.proc import cgroup
from hangwatch_agent.capture.stacks.py_spy import TIMEOUT_S
from hangwatch_agent.shared.procfs import PROC


@dataclass(frozen=True)
class Target:
    """A rank to look at: its board as last read, where that board lies, and its log files where they are known.

    The log files of a living rank are found by themselves; those of a dead one must have been remembered
    (`outputs.log_files` while it lived).
    """

    reading: Reading
    board_path: Path
    log_files: tuple[Path, ...] = ()
    unreadable_output: str = ""  # what standard error is where it keeps nothing ("a pipe"), see `outputs.unreadable`
    visible: bool = True  # False: its process is in a pid namespace that cannot be seen from here
    variables: Mapping[str, str] | None = None  # digests of its environment, see `proc.variables`

    @property
    def run_dir(self) -> Path:
        return self.board_path.parent

    @property
    def pid(self) -> int:
        return self.reading.identity.pid

    @property
    def own_pid(self) -> int:
        """Its pid as it knows it itself, by which it names its files; in a container that is not the pid here."""
        return file_name.own_pid(self.board_path) or self.pid

    @property
    def rank(self) -> int | None:
        return self.reading.identity.rank


def counters_differ(first: Reading, second: Reading) -> bool:
    """Whether a rank's counters or its phase differ between two readings."""
    return replace(first.progress, at=0.0) != replace(second.progress, at=0.0) or first.phase != second.phase


@dataclass(frozen=True)
class CaptureOptions:
    """What a capture works with. The defaults are the real things; tests put others in their place.

    Attributes:
        request_collectives: Asks the rank of a board (path, pid) to write `collectives-PID.json` beside it; None if
            ranks cannot be asked. May raise OSError or ValueError.
        taken_up: Whether the rank of a board has begun to answer.
        gpus: Kept between captures, because NVML is started only once.
        proc: Root of the proc file system.
        cgroups: Root of the cgroup file systems.
        py_spy: The program; None looks for it.
        clock: Seconds since 1970.
        sleep: Waits so many seconds; may return early.
        sample_gap_s: Between the two samples.
        stack_timeout_s: For the stacks of one process.
        oom_kills_before: What `node.oom_kills` said when the watchdog started.
        moved: Whether a rank has moved between two readings of its board.
        ourselves: Processes of hangwatch, this one included, which are no part of the job.
    """

    request_collectives: Callable[[Path, int], None] | None = None
    taken_up: Callable[[Path], bool] = lambda path: False
    gpus: Gpus = field(default_factory=Gpus)
    proc: Path = PROC
    cgroups: Path = cgroup.CGROUPS
    py_spy: Path | None = None
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], object] = time.sleep
    sample_gap_s: float = 1.0
    stack_timeout_s: float = TIMEOUT_S
    oom_kills_before: int | None = None
    moved: Callable[[Reading, Reading], bool] = counters_differ
    ourselves: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CaptureResult:
    """The evidence of one machine.

    Targets that do not know their rank yet stand among `others` with the role "job". `sampled_twice` is false where
    the second sample came too soon after the first to tell movement.
    """

    taken_at: float
    ranks: tuple[RankEvidence, ...]
    launchers: tuple[ProcessEvidence, ...]
    others: tuple[ProcessEvidence, ...]
    node: NodeFacts
    notes: tuple[CaptureNote, ...]
    sampled_twice: bool = True
    excerpts: tuple[Excerpt, ...] = ()
    call_sites: tuple[CallSite, ...] = ()
    switches: tuple[Switch, ...] = ()
    store_keys: tuple[StoreKey, ...] = ()
