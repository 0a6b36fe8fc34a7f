"""One thread that writes, in groups: a thousand batches a second become some dozens of transactions.

`submit` returns when its write is committed; so what has been acknowledged is in the store, whatever dies next.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

Write = Callable[[Connection], Any]
GATHER_S = 0.015
MOST_IN_A_GROUP = 4096


class StoreBusyError(RuntimeError):
    """The store cannot take more at the moment (HTTP 503)."""


@dataclass(frozen=True)
class Item:
    """Something to write: a row for the batch function, or a write of its own; and the future of its caller."""

    row: Any
    write: Write | None
    waiting: Future[Any] | asyncio.Future[Any]

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self.waiting.get_loop() if isinstance(self.waiting, asyncio.Future) else None


Outcome = tuple[Item, Any, BaseException | None]


class Writer:
    """Executes writes in order in one thread, as many as there are in one transaction.

    Writes that are equal in kind can be given as rows of a `batch` function, which then gets all rows of the group at
    once (one executemany). A group that fails is tried again write by write, so that one bad write fails alone.
    """

    def __init__(self, engine: Engine, batch: Callable[[Connection, Sequence[Any]], None], capacity: int = 20_000):
        self._engine, self._batch = engine, batch
        self._queue: queue.Queue[Item | None] = queue.Queue(capacity)
        self.healthy = True
        self._thread = threading.Thread(target=self._run, name="hangwatch-writer", daemon=True)
        self._thread.start()

    def row(self, row: Any) -> Future[Any]:
        """Writes one row with the batch function. The future is done when it is committed."""
        waiting: Future[Any] = Future()
        self._put(Item(row, None, waiting))
        return waiting

    def row_soon(self, row: Any) -> asyncio.Future[Any]:
        """`row`, for a coroutine; a whole group wakes its event loop once, not a thousand times."""
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._put(Item(row, None, waiting))
        return waiting

    def submit(self, write: Write) -> Future[Any]:
        """Executes `write(connection)` in a transaction. The future has its result, once committed."""
        waiting: Future[Any] = Future()
        self._put(Item(None, write, waiting))
        return waiting

    def close(self) -> None:
        """Ends when everything that was submitted is written."""
        self._queue.put(None)
        self._thread.join(10)

    def _put(self, item: Item) -> None:
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            raise StoreBusyError("the store cannot keep up") from None

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            time.sleep(GATHER_S)
            group, last = self._group(first)
            _tell(self._commit(group))
            if last:
                return

    def _group(self, first: Item) -> tuple[list[Item], bool]:
        """Everything that waits, and whether it is the last."""
        group = [first]
        while len(group) < MOST_IN_A_GROUP:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return group, True
            group.append(item)
        return group, False

    def _commit(self, group: list[Item]) -> list[Outcome]:
        try:
            results = self._execute(group)
        except OperationalError as error:  # the database has gone, is full, is locked: not a fault of one write
            self.healthy = False
            busy = StoreBusyError(f"the store cannot be written: {error.orig}")
            return [(item, None, busy) for item in group]
        except Exception as error:
            # Not only SQLAlchemy's: a write is any function, and its error belongs to its caller.
            if len(group) == 1:
                return [(group[0], None, error)]
            return [outcome for item in group for outcome in self._commit([item])]
        self.healthy = True
        return [(item, result, None) for item, result in zip(group, results, strict=True)]

    def _execute(self, group: list[Item]) -> list[Any]:
        with self._engine.begin() as connection:
            rows = [item.row for item in group if item.write is None]
            if rows:
                self._batch(connection, rows)
            return [item.write(connection) if item.write is not None else None for item in group]


def _tell(outcomes: list[Outcome]) -> None:
    """Hands out what came of a group: to threads at once, to every event loop in one go."""
    by_loop: dict[asyncio.AbstractEventLoop | None, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_loop[outcome[0].loop].append(outcome)
    for loop, own in by_loop.items():
        if loop is None:
            _settle(own)
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the caller
                loop.call_soon_threadsafe(_settle, own)


def _settle(outcomes: list[Outcome]) -> None:
    for item, result, error in outcomes:
        waiting = item.waiting
        if isinstance(waiting, Future):
            if not waiting.set_running_or_notify_cancel():
                continue  # the caller has gone; the write stands all the same
        elif waiting.done():
            continue
        if error is not None:
            waiting.set_exception(error)
        else:
            waiting.set_result(result)
