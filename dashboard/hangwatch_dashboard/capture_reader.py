"""Captures as they arrive: checked, and of large jobs in a process of their own.

Reading one takes as long as reading dozens of batches. A thousand nodes answer at the same moment, and would keep the
event loop from acknowledging batches for seconds.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache

from hangwatch.model import NodeCapture
from hangwatch_dashboard.bodies import BodyError, Raw, Reader
from hangwatch_dashboard.checks import check_sender

MANY_NODES = 32  # below, all answers together are read sooner than a process starts
KEPT_S = 60.0  # that the process stays: a capture is over by then, and answers that came too late are read, too
NICE = 5  # batches go first

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Envelope:
    """Whose part of which capture a body is."""

    job: str
    node: str
    boot: str
    request: str


class CaptureReader:
    """Reads bodies of captures: here, or apart while many nodes have been asked. Used by one event loop."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._end: asyncio.TimerHandle | None = None

    def expect(self, nodes: int) -> None:
        """So many nodes have been asked for their evidence. The process starts while they take it."""
        if nodes < MANY_NODES:
            return
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _make_ready)
            self._pool.submit(os.getpid)  # starts it
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(KEPT_S, self._rest)

    def _rest(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)  # it reads what it was given, and ends
            self._pool = None

    async def stop(self) -> None:
        """Ends the process, and waits until it is gone."""
        if self._end is not None:
            self._end.cancel()
        pool, self._pool = self._pool, None  # what comes meanwhile is read here
        if pool is not None:
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)

    async def read(self, raw: Raw) -> Envelope:
        """What the body says of itself, once all of it is known to be a capture. Raises BodyError."""
        pool = self._pool
        if pool is None:
            return read(raw)
        try:
            found = await asyncio.wrap_future(pool.submit(_outcome, raw))
        except BrokenProcessPool:
            log.warning("the process that reads captures was killed; they are read in this one")
            if self._pool is pool:  # another capture may have started a new one by now
                self._pool = None
            return read(raw)
        if isinstance(found, Envelope):
            return found
        raise BodyError(*found)


def read(raw: Raw) -> Envelope:
    """A body's envelope, if all of it is a capture. Raises BodyError."""
    part = _capture().read(raw.in_the_clear())
    check_sender(part)
    return Envelope(part.job, part.node, part.boot, part.request)


def _outcome(raw: Raw) -> Envelope | tuple[int, str]:
    """`read`, without an error that two processes could not hand to each other."""
    try:
        return read(raw)
    except BodyError as error:
        return error.status, str(error)


@cache
def _capture() -> Reader[NodeCapture]:
    return Reader(NodeCapture)


def _make_ready() -> None:
    os.nice(NICE)
    _capture()
    gc.freeze()
    gc.set_threshold(50_000)  # a capture is some ten thousand records, none of which points back
