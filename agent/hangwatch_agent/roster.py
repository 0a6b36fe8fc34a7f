"""The ranks of this node as the watchdog knows them: every board read once a poll, and since when each stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from hangwatch.model import Collective, Phase, Progress, Reading
from hangwatch_agent import local, rundir
from hangwatch_agent.board import BoardError
from hangwatch_agent.boardfile import start_ticks
from hangwatch_agent.capture import procfs

FINAL_S = 3.0  # a board is read for so long after its rank has gone
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
Mark = tuple[Progress, Phase, tuple[object, ...]]


@dataclass(frozen=True)
class Standing:
    """One rank: its newest reading, when it last moved, and what the system says of its process.

    `state` is the letter of /proc/PID/stat, "X" where the process is gone or the pid belongs to another one by now, or
    "?" where it cannot be seen from here: it may live.
    """

    path: Path
    reading: Reading
    moved_at: float
    state: str
    since: float  # when `state` was first seen
    held_patience_s: float | None = None  # patience where a look has shown a fact that holds it as long as it stands

    @property
    def rank(self) -> int | None:
        return self.reading.identity.rank

    @property
    def pid(self) -> int:
        return self.reading.identity.pid

    @property
    def ticks(self) -> int:
        """The start of the process in clock ticks since boot: pids are used again."""
        return start_ticks(self.path)

    @property
    def visible(self) -> bool:
        """Whether the process can be seen from here, or could while it lived."""
        return self.state != "?"

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
        self._final: set[Path] = set()
        self._state_of = state_of or process_state

    def update(self, now: float) -> tuple[Standing, ...]:
        """Read every board and return the standings of the newest generation, by rank."""
        # Those known stay readable where they were deleted under our feet: the reader keeps the file open.
        for path in {*rundir.boards(self.folder), *self._standings} - self._final:
            state = self._read(path, now)
            if path in self._standings:
                self._standings[path] = standing = self._refreshed(self._standings[path], state, now)
                if standing.state == "X" and now - standing.since > FINAL_S:
                    self._final.add(path)  # nobody writes it any more
                    local.forget(path)
        return newest(self._standings.values())

    def _read(self, path: Path, now: float) -> str:
        """Take in what a board says. Returns the state of a process that its pid does not tell of, else ""."""
        try:
            found = local.read(path)
        except (BoardError, OSError) as error:
            self.broken[path] = str(error)
            return ""
        reading = found.reading
        self.broken.pop(path, None)
        known = self._standings.get(path)
        if known is None:
            moved_at = min(now, max(reading.progress.at, reading.phase_at, reading.identity.started_at))
            self._standings[path] = Standing(path, reading, moved_at, "?", now)
        else:
            moved = mark(known.reading) != mark(reading)
            moved_at = min(now, max(known.moved_at, reading.progress.at, reading.phase_at)) if moved else known.moved_at
            self._standings[path] = replace(known, reading=reading, moved_at=moved_at)
        return found.state

    def _refreshed(self, standing: Standing, state: str, now: float) -> Standing:
        state = state or self._state_of(standing.pid, standing.ticks)
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
        stat = procfs.parse_stat(procfs.read_text(procfs.PROC / str(pid) / "stat"))
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    except (OSError, ValueError, IndexError):
        return "?"
    return "X" if start_ticks and stat.ticks != start_ticks else stat.state
