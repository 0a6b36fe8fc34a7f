"""The ranks of this node as the watchdog knows them: every board read once a poll, and since when each stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hangwatch.model import Collective, Phase, Progress, Reading
from hangwatch_agent.board import directory, local_reader
from hangwatch_agent.board.file_name import start_ticks
from hangwatch_agent.board.layout import BoardError
from hangwatch_agent.roster.phases import LEAVING
from hangwatch_agent.roster.written import Written
from hangwatch_agent.shared import procfs, rank_rule

FINAL_S = 3.0  # a board is read for so long after its rank has gone
Mark = tuple[Progress, Phase, tuple[object, ...]]


@dataclass(frozen=True)
class RankState:
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
    wrote_at: float | None = None  # when it was last seen to have written since then, itself or a process of its own
    slowest_s: float = 0.0  # the slowest recent step of any rank: what one does between two steps, the others wait for

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

    @property
    def failing(self) -> bool:
        """An uncaught exception is on its way out."""
        return self.reading.exception is not None and self.reading.exception.fatal

    def went_on_since(self, before: RankState) -> bool:
        """It has moved, and not merely to its end: there a rank comes without any progress when it gives up a wait."""
        ended = self.reading.phase in LEAVING and before.reading.phase not in LEAVING
        gave_up = self.failing or (ended and mark(self.reading)[0] == mark(before.reading)[0])
        return self.moved_at > before.moved_at and not gave_up


class Roster:
    """Keeps `RankState`s across polls. Boards that cannot be read are kept in `broken`, with the reason."""

    def __init__(self, folder: Path, *, state_of: Callable[[int, int], str] | None = None) -> None:
        self.folder = folder
        self.broken: dict[Path, str] = {}
        self._rank_states: dict[Path, RankState] = {}
        self._final: set[Path] = set()
        self._state_of = state_of or procfs.process_state
        self._written = Written(folder)

    def update(self, now: float) -> tuple[RankState, ...]:
        """Read every board and return the states of the newest generation, by rank."""
        # Those known stay readable where they were deleted under our feet: the reader keeps the file open.
        for path in {*directory.boards(self.folder), *self._rank_states} - self._final:
            state = self._read(path, now)
            if path in self._rank_states:
                self._rank_states[path] = rank_state = self._refreshed(self._rank_states[path], state, now)
                if rank_state.state == "X" and now - rank_state.since > FINAL_S:
                    self._final.add(path)  # it is no longer written
                    local_reader.forget(path)
        return with_slowest(newest(self._rank_states.values()))

    def _read(self, path: Path, now: float) -> str:
        """Take in what a board says. Returns the state of a process that its pid does not tell of, else ""."""
        try:
            found = local_reader.read(path)
        except (BoardError, OSError) as error:
            self.broken[path] = str(error)
            return ""
        reading = found.reading
        self.broken.pop(path, None)
        known = self._rank_states.get(path)
        if known is None:
            moved_at = min(now, max(reading.progress.at, reading.phase_at, reading.identity.started_at))
            self._rank_states[path] = RankState(path, reading, moved_at, "?", now)
        else:
            moved = mark(known.reading) != mark(reading)
            moved_at = min(now, max(known.moved_at, reading.progress.at, reading.phase_at)) if moved else known.moved_at
            self._rank_states[path] = replace(known, reading=reading, moved_at=moved_at)
        return found.state

    def _refreshed(self, rank_state: RankState, state: str, now: float) -> RankState:
        state = state or self._state_of(rank_state.pid, rank_state.ticks)
        if state != rank_state.state:
            rank_state = replace(rank_state, state=state, since=now)
        if not (rank_state.alive and rank_state.visible):
            return rank_state  # its pid may be that of another process
        written = self._written.last(rank_state.path, rank_state.pid, rank_state.moved_at, now)
        return rank_state if written == rank_state.wrote_at else replace(rank_state, wrote_at=written)


def mark(reading: Reading) -> Mark:
    """What differs between two readings of a rank that moves. Times are left out: a ticker ticks in a hung rank too."""
    progress = replace(reading.progress, at=0.0)
    loaders = tuple(
        (loader.epoch, loader.drawn, loader.exhausted, loader.inside_next)
        for loader in reading.loaders
        if not loader.gives_nothing  # to begin one empty epoch after another is no progress
    )
    groups = tuple((made.index, made.done) for made in reading.groups_made)
    return progress, reading.phase, (*loaders, *groups, *(_call(call) for call in reading.open_calls))


def _call(call: Collective) -> tuple[object, ...]:
    return call.group, call.seq, call.op, call.at


def newest(rank_states: Iterable[RankState]) -> tuple[RankState, ...]:
    """The ranks of the last generation that a restarting launcher made; of two with one rank and pid, the newer.

    Two *living* processes that claim one rank are both kept: that is a fault of its own (rendezvous-duplicate-rank).
    """
    found = sorted(rank_states, key=lambda each: each.reading.identity.started_at)
    generation = max((_generation(each) for each in found), default=0)
    chosen: dict[object, RankState] = {}
    for each in found:
        if _generation(each) == generation:
            key = each.pid if each.alive or each.rank is None else each.rank
            chosen[key] = each
    living = {each.rank for each in chosen.values() if each.alive}
    kept = [each for each in chosen.values() if each.alive or each.rank is None or each.rank not in living]
    return tuple(sorted(kept, key=lambda each: (each.rank is None, each.rank or 0, each.pid)))


def with_slowest(rank_states: Sequence[RankState]) -> tuple[RankState, ...]:
    """The ranks' states with the slowest recent step of all of them."""
    slowest_s = max((each.reading.times.slowest_recent_s for each in rank_states), default=0.0)
    return tuple(replace(each, slowest_s=slowest_s) for each in rank_states)


def _generation(rank_state: RankState) -> int:
    return rank_rule.generation(rank_state.reading.identity.environment)
