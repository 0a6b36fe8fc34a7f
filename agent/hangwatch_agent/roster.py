"""The ranks of this node as the watchdog knows them: every board read once a poll, and since when each stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from hangwatch.records import Collective, Phase, Progress, Reading
from hangwatch_agent import rundir
from hangwatch_agent.board import BoardError, read_board

RESTARTS = "TORCHELASTIC_RESTART_COUNT"
Mark = tuple[Progress, Phase, tuple[object, ...]]
one_reader = threading.Lock()  # the watchdog's beat goes on reading boards while a capture reads them


@dataclass(frozen=True)
class Standing:
    """One rank: its newest reading, when it last moved, and what the system says of its process.

    `state` is the letter of /proc/PID/stat, or "X" where the process is gone or the pid belongs to another one by now.
    """

    path: Path
    reading: Reading
    moved_at: float
    state: str
    since: float  # when `state` was first seen

    @property
    def rank(self) -> int | None:
        return self.reading.identity.rank

    @property
    def pid(self) -> int:
        return self.reading.identity.pid

    @property
    def alive(self) -> bool:
        return self.state not in ("X", "Z")

    @property
    def blocked(self) -> bool:
        """Whether the board alone says that the rank may be waiting for others: work is open, or a call is."""
        reading = self.reading
        return bool(reading.open_calls) or any(head.issued > max(head.completed, 0) for head in reading.heads)


class Roster:
    """Keeps `Standing`s across polls. Boards that cannot be read are kept in `broken`, with the reason."""

    def __init__(self, folder: Path, *, state_of: Callable[[int, int], str] | None = None) -> None:
        self.folder = folder
        self.broken: dict[Path, str] = {}
        self._standings: dict[Path, Standing] = {}
        self._state_of = state_of or process_state

    def update(self, now: float) -> tuple[Standing, ...]:
        """Read every board and return the standings of the newest generation, by rank."""
        # Those known stay readable where they were deleted under our feet: the reader keeps the file open.
        for path in {*rundir.boards(self.folder), *self._standings}:
            self._read(path, now)
        for path, standing in self._standings.items():
            self._standings[path] = self._refreshed(standing, now)
        return newest(self._standings.values())

    def _read(self, path: Path, now: float) -> None:
        try:
            with one_reader:
                reading = read_board(path)
        except (BoardError, OSError) as error:
            self.broken[path] = str(error)
            return
        self.broken.pop(path, None)
        known = self._standings.get(path)
        if known is None:
            moved_at = min(now, max(reading.progress.at, reading.phase_at, reading.identity.started_at))
            self._standings[path] = Standing(path, reading, moved_at, "?", now)
        else:
            moved = mark(known.reading) != mark(reading)
            moved_at = min(now, max(known.moved_at, reading.progress.at, reading.phase_at)) if moved else known.moved_at
            self._standings[path] = replace(known, reading=reading, moved_at=moved_at)

    def _refreshed(self, standing: Standing, now: float) -> Standing:
        state = self._state_of(standing.pid, start_ticks(standing.path))
        return standing if state == standing.state else replace(standing, state=state, since=now)


def mark(reading: Reading) -> Mark:
    """What differs between two readings of a rank that moves. Times are left out: a ticker ticks in a hung rank too."""
    progress = replace(reading.progress, at=0.0)
    loaders = tuple((loader.epoch, loader.drawn, loader.exhausted, loader.inside_next) for loader in reading.loaders)
    groups = tuple((made.index, made.done) for made in reading.groups_made)
    return progress, reading.phase, (*loaders, *groups, *(_call(call) for call in reading.open_calls))


def _call(call: Collective) -> tuple[object, ...]:
    return call.group, call.seq, call.op, call.at


def newest(standings: Iterable[Standing]) -> tuple[Standing, ...]:
    """The standings of the last generation that a restarting launcher made; of two with one rank and pid, the newer.

    Two *living* processes that claim one rank are both kept: that is a fault of its own (rendezvous-duplicate-rank).
    """
    found = sorted(standings, key=lambda each: each.reading.identity.started_at)
    generation = max((_generation(each) for each in found), default=0)
    chosen: dict[object, Standing] = {}
    for each in found:
        if _generation(each) == generation:
            key = each.pid if each.alive or each.rank is None else each.rank
            chosen[key] = each
    living = {each.rank for each in chosen.values() if each.alive}
    kept = [each for each in chosen.values() if each.alive or each.rank is None or each.rank not in living]
    return tuple(sorted(kept, key=lambda each: (each.rank is None, each.rank or 0, each.pid)))


def _generation(standing: Standing) -> int:
    text = standing.reading.identity.environment.get(RESTARTS, "0")
    return int(text) if text.isdigit() else 0


def process_state(pid: int, start_ticks: int) -> str:
    """The state letter of a process, or "X" where it is gone or its pid has been given to another one.

    `start_ticks` is the process's start in clock ticks since boot (0: not known). Ticks and not times of day are
    compared: a clock that is set anew must not make living ranks look dead.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    except OSError:
        return "?"
    return "X" if start_ticks and int(fields[19]) != start_ticks else fields[0]


def start_ticks(board: Path) -> int:
    """The start of a board's rank in clock ticks since boot: the last part of its file name."""
    ticks = board.stem.rpartition("-")[2]
    return int(ticks) if ticks.isdigit() else 0
