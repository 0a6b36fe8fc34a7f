"""One thread that writes, in groups: a thousand batches a second become some dozens of transactions.

`submit` returns when its write is committed; so what has been acknowledged is in the store, whatever dies next.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

Write = Callable[[Connection], Any]
GATHER_S = 0.015


class StoreBusyError(RuntimeError):
    """The store cannot take more at the moment (HTTP 503)."""


class Writer:
    """Executes writes in order in one thread, as many as there are in one transaction.

    Writes that are equal in kind can be given as rows of a `batch` function, which then gets all rows of the group at
    once (one executemany). A group that fails is tried again write by write, so that one bad write fails alone.
    """

    def __init__(self, engine: Engine, batch: Callable[[Connection, Sequence[Any]], None], capacity: int = 20_000):
        self._engine, self._batch = engine, batch
        self._queue: queue.Queue[tuple[Any, Write | None, Future[Any]] | None] = queue.Queue(capacity)
        self.healthy = True
        self._thread = threading.Thread(target=self._run, name="hangwatch-writer", daemon=True)
        self._thread.start()

    def row(self, row: Any) -> Future[Any]:
        """Writes one row with the batch function. The future is done when it is committed."""
        return self._put(row, None)

    def submit(self, write: Write) -> Future[Any]:
        """Executes `write(connection)` in a transaction. The future has its result, once committed."""
        return self._put(None, write)

    def close(self) -> None:
        """Ends when everything that was submitted is written."""
        self._queue.put(None)
        self._thread.join(10)

    def _put(self, row: Any, write: Write | None) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            self._queue.put_nowait((row, write, future))
        except queue.Full:
            raise StoreBusyError("the store cannot keep up") from None
        return future

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            time.sleep(GATHER_S)
            group = [first]
            last = False
            while len(group) < 4096:
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    last = True
                    break
                group.append(item)
            self._commit(group)
            if last:
                return

    def _commit(self, group: list[tuple[Any, Write | None, Future[Any]]]) -> None:
        try:
            results = self._execute(group)
        except OperationalError as error:  # the database has gone, is full, is locked: nobody's own fault
            self.healthy = False
            for _, _, future in group:
                _settle(future, None, StoreBusyError(f"the store cannot be written: {error.orig}"))
            return
        except Exception as error:
            # Not only SQLAlchemy's: a write is any function, and its error belongs to whoever submitted it.
            if len(group) == 1:
                _settle(group[0][2], None, error)
                return
            for item in group:
                self._commit([item])
            return
        self.healthy = True
        for (_, _, future), result in zip(group, results, strict=True):
            _settle(future, result, None)

    def _execute(self, group: list[tuple[Any, Write | None, Future[Any]]]) -> list[Any]:
        with self._engine.begin() as connection:
            rows = [row for row, write, _ in group if write is None]
            if rows:
                self._batch(connection, rows)
            return [write(connection) if write is not None else None for _, write, _ in group]


def _settle(future: Future[Any], result: Any, error: BaseException | None) -> None:
    if not future.set_running_or_notify_cancel():
        return  # whoever waited has gone; the write stands all the same
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
