"""The ticker: a thread in the rank that keeps the slow parts of the board fresh and answers the watchdog."""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hangwatch_agent.board import layout as b
from hangwatch_agent.rank.flight_recorder import Recorder, completed, enqueued, is_mixed, latest, numbers
from hangwatch_agent.rank.group import Group
from hangwatch_agent.rank.hooks.context import Context

if TYPE_CHECKING:
    from hangwatch.model import WaitingTask

# Phases in which collectives that DDP has issued may be under way.
WORKING = (b.FORWARD, b.BACKWARD, b.EVAL, b.STEP)
# What the hooks count as the rank moves on, without the ticker.
MOVES = (b.W_STEPS_WRITTEN, b.W_FORWARDS, b.W_OPTIMIZER_STEPS, b.W_CALLS_WRITTEN, b.W_TICKS)
FULL_EVERY_S = 1.0  # of a rank that moves: as often as the watchdog polls by default


class Ticker:
    """Runs `tick` every `interval` seconds until stopped, or until the process is a forked child.

    A rank that moves says so by its hooks. A tick in which it has moved only says that the ticker lives, and answers;
    what asks torch and looks around is done once a second then, and at every tick of a rank that stands still.

    `looks` are further things to do, each under the guard. `on_request` runs before an answer is written. No thread of
    `threading`'s: a program that joins all threads, or counts them, is to find its own only.
    """

    def __init__(
        self, context: Context, interval: float, looks: tuple[Callable[[], None], ...], on_request: Callable[[], None]
    ) -> None:
        self._context = context
        self._interval = interval
        self._looks = looks
        self._on_request = on_request
        self._stop = threading.Event()
        self._pid = os.getpid()
        self._recorder: Recorder | None = None
        self._estimates = False
        self._silent_looks = 0  # in a row in which the recorder had nothing of collectives that were issued
        self._moves = -1
        self._full_at = 0.0
        self._over = threading.Event()  # set while no thread of ours runs
        self._over.set()
        self._ident = 0

    def look_too(self, look: Callable[[], None]) -> None:
        """Do one thing more at each tick, under the same guard."""
        self._looks = (*self._looks, look)

    def start(self) -> None:
        self._over.clear()
        self._ident = _thread.start_new_thread(self._run, ())

    @property
    def runs(self) -> bool:
        """Whether its thread has not ended."""
        return not self._over.is_set()

    def stop(self) -> None:
        """Stop and wait for a tick that is under way, a second at most."""
        self._stop.set()
        if self._ident != _thread.get_ident() and self._pid == os.getpid():
            self._over.wait(1.0)

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._interval):
                if os.getpid() != self._pid or not self._context.board.real:
                    return
                self.tick()
        finally:
            self._over.set()

    def tick(self) -> None:
        """Once: the time, a look around if one is due, and an answer if one was asked for."""
        try:
            now = time.monotonic_ns()
            self._context.board.words[b.W_TICKER_AT] = now
            if self._is_due(now / 1e9):
                self.look()
            self._answer()
        except Exception as error:
            self._context.guard.swallow(error)

    def look(self) -> None:
        """Everything that the hooks leave to the ticker."""
        for body in (*self._looks, self._context.steps.publish, self._heads):
            try:
                body()
            except Exception as error:
                self._context.guard.swallow(error)

    def _is_due(self, now: float) -> bool:
        words = self._context.board.words
        moves = sum(words[word] for word in MOVES)
        moved, self._moves = moves != self._moves, moves
        asked = words[b.W_REQUEST] != words[b.W_ANSWERED]
        if moved and not asked and now - self._full_at < FULL_EVERY_S:
            return False
        self._full_at = now
        return True

    def _heads(self) -> None:
        groups = [group for group in self._context.groups.slots if group.alive]
        words = self._context.board.words
        if groups:
            backends = {name for group in groups for name in group.records}
            status = self._recording().status(backends)
            if any(status.values()) and self._confused(groups, status):
                numbers(groups, self._recording())
                status = self._recording().status(backends)
            counts = {group.index: group.count() for group in groups}
            silent = any(counts.values()) and not any(status.values())
            self._silent_looks = self._silent_looks + 1 if silent else 0
            for group in groups:
                group.notice(latest(group, status), mixed=is_mixed(group))
                at = b.GROUPS_AT + group.index * b.SLOT_WORDS
                done = completed(group, status)
                issued = counts[group.index]
                words[at + b.G_ISSUED] = issued
                if done is None and issued > 0 and self._silent_looks > 1:  # torch counts a call before it records it
                    done = self._estimated(group, issued)
                if done is not None:
                    words[at + b.G_COMPLETED] = max(min(done, issued), words[at + b.G_COMPLETED])
        self._sum(words)

    def _confused(self, groups: list[Group], status: dict[str, dict[str, Any]]) -> bool:
        """Whether a group's status in the recorder is another's: at two ticks it differs from our count in one way.

        Said once for each such difference: to look again would cost milliseconds, and find the same.
        """
        confused = False
        for group in groups:
            counts = (group.count(), enqueued(group, status))
            if group.records and not is_mixed(group) and counts[0] > 0 and counts[0] != counts[1]:
                ticks = group.differed[1] + 1 if group.differed[0] == counts else 1
                group.differed = (counts, ticks)
                confused = confused or ticks == 2
        return confused

    def _estimated(self, group: Group, issued: int) -> int:
        """Completed collectives where the recorder is off: those before an open one, else all when a step is over."""
        if not self._estimates:
            self._estimates = True
            self._context.board.problem("torch's flight recorder is off: what is completed is an estimate")
        if inside := self._context.board.open_collectives(group.index):
            return min(inside) - 1
        if self._context.board.words[b.W_PHASE] in WORKING:
            return self._context.waited.get(group.index, 0)
        return issued

    def _sum(self, words: memoryview) -> None:
        """Progress counts calls of groups that are gone too: counters only grow."""
        calls = done = 0
        for group in self._context.groups.slots:
            at = b.GROUPS_AT + group.index * b.SLOT_WORDS
            calls += max(words[at + b.G_ISSUED], 0) + group.sent + group.received
            done += max(words[at + b.G_COMPLETED], 0) + group.messages_done
        if calls > words[b.W_CALLS] or done > words[b.W_COMPLETED]:
            words[b.W_CALLS], words[b.W_COMPLETED] = max(calls, words[b.W_CALLS]), max(done, words[b.W_COMPLETED])
            words[b.W_MOVED_AT] = time.monotonic_ns()

    def _recording(self) -> Recorder:
        if self._recorder is None:
            path = self._context.board.path
            self._recorder = Recorder(path.parent if path is not None else None)
            if self._recorder.missing:
                self._context.board.problem(self._recorder.missing)
        return self._recorder

    def _answer(self) -> None:
        board = self._context.board
        request = board.words[b.W_REQUEST]
        if request == board.words[b.W_ANSWERED] or board.path is None:
            return
        began = time.thread_time()
        board.words[b.W_ANSWERED] = request  # before the work: a request that cannot be answered is not tried for ever
        self._on_request()
        # Only now: what reads and writes records costs a rank 30 ms once, and most never need it.
        from hangwatch_agent.rank.collectives_answer import write_answer

        groups = list(self._context.groups.slots)
        backends = {name for group in groups for name in group.records} if "torch" in sys.modules else set()
        write_answer(board.path, self._recording(), groups, backends, began, self._lacking(), self._tasks())

    def _lacking(self) -> list[str]:
        from hangwatch_agent.rank.hooks.without_gradients import without_gradients

        try:
            return without_gradients(self._context.models)
        except Exception as error:  # the answer is worth more
            self._context.guard.swallow(error)
            return []

    def _tasks(self) -> tuple[WaitingTask, ...]:
        from hangwatch_agent.rank.waiting_tasks import waiting_tasks

        try:
            return waiting_tasks()
        except Exception as error:
            self._context.guard.swallow(error)
            return ()
