"""Bodies of captures, read in this process and in one of its own: both say the same."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hangwatch.model import NodeCapture
from hangwatch.report.incident import snapshot_of
from hangwatch.wire import codec
from hangwatch_dashboard import capture_reader
from hangwatch_dashboard.bodies import BodyError, Raw
from hangwatch_dashboard.capture_reader import MANY_NODES, CaptureReader, Envelope
from tests.examples import uneven_steps
from tests.nodes import FakeNode

LIMIT = 1 << 20


def body(**changes: str) -> bytes:
    made = FakeNode().capture(snapshot_of([uneven_steps()]), "c-1")
    return codec.dumps(NodeCapture(**{**vars(made), **changes})).encode()


def raw(text: bytes, *, limit: int = LIMIT) -> Raw:
    return Raw(gzip.compress(text), True, limit)


WRONG = {
    400: raw(b"{"),
    413: raw(b" " * 100, limit=99),
    422: raw(body(node="")),
}


async def with_reader(nodes: int, ask: Callable[[CaptureReader], Awaitable[None]]) -> None:
    reader = CaptureReader()
    reader.expect(nodes)
    try:
        await ask(reader)
    finally:
        await reader.stop()


@pytest.mark.parametrize("nodes", [1, MANY_NODES])
def test_a_capture_is_read_and_what_is_none_is_refused(nodes: int) -> None:
    async def ask(reader: CaptureReader) -> None:
        assert (reader._pool is not None) is (nodes >= MANY_NODES)
        found = await reader.read(raw(body()))
        assert found == Envelope("10.0.0.1:29500", "node-a", "boot-1", "c-1")
        for status, wrong in WRONG.items():
            with pytest.raises(BodyError) as refused:
                await reader.read(wrong)
            assert refused.value.status == status

    asyncio.run(with_reader(nodes, ask))


def test_a_process_that_is_killed_costs_no_capture() -> None:
    """GIVEN the kernel that kills the process for its memory THEN its captures are read in this one."""

    async def ask(reader: CaptureReader) -> None:
        assert reader._pool is not None
        os.kill(await asyncio.wrap_future(reader._pool.submit(os.getpid)), signal.SIGKILL)
        assert (await reader.read(raw(body()))).node == "node-a"
        assert (await reader.read(raw(body()))).node == "node-a"

    asyncio.run(with_reader(MANY_NODES, ask))


def test_what_comes_while_it_stops_is_read_too() -> None:
    async def ask(reader: CaptureReader) -> None:
        stopping = asyncio.create_task(reader.stop())
        await asyncio.sleep(0)
        assert (await reader.read(raw(body()))).node == "node-a"
        await stopping

    asyncio.run(with_reader(MANY_NODES, ask))


def test_the_end_of_a_process_is_not_taken_for_that_of_the_next() -> None:
    """GIVEN a capture whose process dies late WHEN another one has begun THEN its process is still used."""

    async def ask(reader: CaptureReader) -> None:
        assert reader._pool is not None
        pid = await asyncio.wrap_future(reader._pool.submit(os.getpid))
        os.kill(pid, signal.SIGSTOP)
        reading = asyncio.create_task(reader.read(raw(body())))
        await asyncio.sleep(0)
        reader._rest()
        reader.expect(MANY_NODES)
        another = reader._pool
        os.kill(pid, signal.SIGKILL)
        assert (await reading).node == "node-a"
        assert reader._pool is another

    asyncio.run(with_reader(MANY_NODES, ask))


def test_the_process_ends_some_time_after_the_last_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_reader, "KEPT_S", 0.1)

    async def ask(reader: CaptureReader) -> None:
        assert reader._pool is not None
        pid = await asyncio.wrap_future(reader._pool.submit(os.getpid))
        async with asyncio.timeout(60):
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.05)
        assert (await reader.read(raw(body()))).node == "node-a"

    asyncio.run(with_reader(MANY_NODES, ask))
