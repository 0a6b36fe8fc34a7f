"""When a step begins, and what the rank had issued until then: the step ledger of the board.

A step is a batch that a framework names; where none does, one drawn by the training loader, else a tick, else a
forward, else an optimizer step. A better source takes over as soon as it shows.

The count says which step is in progress, from 0: what a rank records is of the step that `step` names. A batch, a
forward and a tick begin a step. An optimizer step ends one, and so begins the next: what was recorded before the first
one is of no step, since where the preparations end and step 0 begins is not seen.
"""

from __future__ import annotations

import time
from struct import Struct

from hangwatch_agent.board import layout as b
from hangwatch_agent.board.layout import (
    S_ISSUED,
    STEP_WORDS,
    STEPS,
    STEPS_AT,
    W_OPTIMIZER_STEPS,
    W_STEPS_WRITTEN,
)
from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.rank.groups import Groups

NOTHING, BY_OPTIMIZER, BY_FORWARD, BY_TICK, BY_LOADER, BY_FRAMEWORK = range(6)
PACK = Struct(f"={b.S_ISSUED - b.S_MARK}q").pack_into  # from its mark, which is set at last
WINDOW = 32  # steps; the slowest recent step is that of this window and the one before
FIRST, WARM = 2, 8  # the first steps, which compile and warm caches, are forgotten behind so many


class Steps:
    """Writes the ledger, the phase and the times of this rank's board."""

    def __init__(self, board: BoardWriter, groups: Groups) -> None:
        self._board = board
        self._groups = groups
        self.reset()

    def reset(self) -> None:
        """Start from nothing: this process has a new board."""
        self.source = NOTHING
        self.count = 0
        self.began_at = 0
        self.loader = b.NONE  # whose batches the steps of a framework are
        self.at = b.STEP  # the phase that follows a draw: a framework may say that it is another
        self.backward = 0  # the count as the newest gradients began to be computed
        self.accumulated = 0  # the count at the newest forward that was not to be synchronised
        self.data_ns = self.before_sync_ns = 0  # hooks add to these; `publish` puts them on the board
        self._timed = self._total = self._last = self._slowest = self._slowest_before = 0
        self._turn = FIRST + 1  # the count of steps at which a window of the slowest ends
        self._row_at = self._row_count = 0  # when the steps since the last pause began, and the count of steps then

    @property
    def step(self) -> int:
        """The index of the current step, `board.NONE` before the first."""
        return self.count - 1 if self.count else b.NONE

    def begin(self, epoch: int, batch: int, loader: int, now: int) -> None:
        """A step begins at time `now` (ns). `board.NONE` stands for what is not known.

        Runs once a step, where caches are cold: one body, for each call costs as much as five lines of it.
        """
        board = self._board
        number = self.count
        groups = self._groups.slots
        words = board.words
        entry = STEPS_AT + number % STEPS * STEP_WORDS
        # The entry that lay here needs no voiding: readers leave out the oldest, which the next one overwrites.
        at = entry + S_ISSUED
        for group in groups:
            pg = group.ref()
            if pg is not None and group.countable:
                try:
                    group.issued = group.sequence(pg) - group.uncounted
                except Exception:  # as in `Group.count`
                    group.refuse()
            words[at] = group.issued
            at += 1
        # Not word by word: no reader looks into an entry without its mark.
        PACK(
            board.bytes, entry * 8, 0, number, epoch, batch, loader, now,
            at, words[W_OPTIMIZER_STEPS], self.backward, self.accumulated,
        )  # fmt: skip
        self.count = number = number + 1
        words[entry] = words[W_STEPS_WRITTEN] = number
        if not (before := self.began_at):
            self._row_at, self._row_count = now, number
        else:
            self._last = took = now - before
            if took > self._slowest:
                self._slowest = took
            if number >= self._turn:
                self._slowest_before, self._slowest = self._slowest, 0
                self._turn = number + WINDOW if number > WARM else WARM + 1
        self.began_at = now

    def accumulates(self) -> None:
        """A forward of this step is not to be synchronised."""
        self.accumulated = self._board.words[b.W_ACCUMULATED_STEP] = self.count

    def publish(self) -> None:
        """Put the times on the board. For the ticker: they are not needed after each step."""
        words = self._board.words
        timed, total = self._in_row()
        words[b.W_TIMED_STEPS], words[b.W_TOTAL_NS] = self._timed + timed, self._total + total
        words[b.W_LAST_NS] = self._last
        words[b.W_DATA_NS], words[b.W_BEFORE_SYNC_NS] = self.data_ns, self.before_sync_ns
        words[b.W_BACKWARD_STEP] = self.backward
        words[b.W_SLOWEST_NS] = max(self._slowest, self._slowest_before)

    def _in_row(self) -> tuple[int, int]:
        """How many steps have followed each other since the last pause, and the nanoseconds that they took."""
        return (self.count - self._row_count, self.began_at - self._row_at) if self.began_at else (0, 0)

    def paused(self) -> None:
        """The time until the next step is not a step's: a loader has ended, or validation began."""
        timed, total = self._in_row()
        self.began_at = 0
        self._timed += timed
        self._total += total

    def take_back(self, count: int) -> None:
        """Steps from `count` on were none: the loader that they came from turned out not to be the training's."""
        if self.source == BY_FRAMEWORK:
            return  # they came from no loader
        words = self._board.words
        self.paused()
        words[b.W_TAKEN_BACK] += 1
        self.count = words[b.W_STEPS_WRITTEN] = count
        self._turn = count + FIRST + 1

    def offer(self, source: int, now: int) -> None:
        """A step begins, by a lesser source than a loader: taken where there has been none better."""
        if source < self.source:
            return
        if self.source != source:
            self._begun_otherwise()
            self.source = source
        self.begin(b.NONE, b.NONE, b.NONE, now)

    def ended(self, now: int) -> None:
        """An optimizer step has ended a step, and begins the next: taken where there is no source that begins them."""
        if self.source > BY_OPTIMIZER:
            return
        self.source = BY_OPTIMIZER
        if not self.count:
            self._board.words[STEPS_AT] = 0  # no reader finds an entry of step 0, not even one that was taken back
            self.count = 1
        self.begin(b.NONE, b.NONE, b.NONE, now)

    def _begun_otherwise(self) -> None:
        """The step that an optimizer has begun is the one that a better source begins now."""
        if self.source == BY_OPTIMIZER and self.count:
            self.take_back(self.count - 1)

    def loader_found(self) -> None:
        """There is a training loader: its draws are the steps. What was counted before the training began is not."""
        if self.source >= BY_LOADER:
            return
        if self.source != NOTHING and self._board.words[b.W_OPTIMIZER_STEPS] == 0:
            self.take_back(0)
        self.source = BY_LOADER

    def named(self, epoch: int, batch: int) -> None:
        """A framework says that the training's batch `batch` begins: what it draws ahead is no step of its own."""
        now = time.monotonic_ns()
        if self.source != BY_FRAMEWORK:
            self._begun_otherwise()
            if self.source != NOTHING and self._board.words[b.W_OPTIMIZER_STEPS] == 0:
                self.take_back(0)
            self.source = BY_FRAMEWORK
        self.at = b.STEP
        self.begin(epoch, batch, self.loader, now)
        self.phase(b.STEP, now)

    def stage(self, phase: int) -> None:
        """A framework says what is done from now on; the time until the next step is none of a step's."""
        self.at = b.EVAL if phase == b.EVAL else b.STEP
        if phase != b.STEP:
            self.paused()
        self.phase(phase)

    def released(self) -> None:
        """The framework is done: other sources count the steps again."""
        if self.source == BY_FRAMEWORK:
            self.source = BY_LOADER
        self.stage(b.BETWEEN)

    def phase(self, phase: int, now: int = 0) -> None:
        """The rank is in this phase from now on."""
        words = self._board.words
        words[b.W_PHASE] = phase
        words[b.W_PHASE_AT] = now or time.monotonic_ns()

    def tick(self) -> None:
        """The user says that a step of a loop of their own begins."""
        now = time.monotonic_ns()
        words = self._board.words
        words[b.W_TICKS] += 1
        self.offer(BY_TICK, now)
        self.phase(b.STEP, now)
