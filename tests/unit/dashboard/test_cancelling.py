"""Tasks of the service end when they are asked to, also where what they wait for comes at that very moment."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from hangwatch_dashboard import replica as following
from hangwatch_dashboard.notify import Messenger
from hangwatch_dashboard.replica import Replica

GRACE_S = 20.0


async def ends(task: asyncio.Task[Any]) -> bool:
    """Whether a task that was cancelled has ended so."""
    done, _ = await asyncio.wait({task}, timeout=GRACE_S)
    return bool(done) and task.cancelled()


def test_the_replica_ends_though_news_come_with_the_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAUSE_S", 0.01)

    async def play() -> bool:
        parts: Any = SimpleNamespace()
        replica = Replica(parts, parts, parts, parts, lambda: 0.0)
        monkeypatch.setattr(replica, "_listen", lambda loop: None)
        task = asyncio.create_task(replica.run())
        await asyncio.sleep(0.05)
        replica.told("another")
        task.cancel()
        return await ends(task)

    monkeypatch.setattr(Replica, "told", lambda self, payload: self._news.set())
    assert asyncio.run(play())


def test_the_messenger_ends_though_its_message_is_sent_with_the_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = threading.Event()

    async def play() -> bool:
        store: Any = SimpleNamespace()
        messenger = Messenger(store, lambda message: True, "", lambda: 0.0, store)
        monkeypatch.setattr(messenger, "_send", lambda found: sent.wait(GRACE_S))
        row: Any = SimpleNamespace(id="3f2a")
        task = asyncio.create_task(messenger._try(row))
        await asyncio.sleep(0.05)
        sent.set()
        time.sleep(0.2)  # the answer of its thread waits for this loop then, as the cancellation does
        task.cancel()
        return await ends(task)

    assert asyncio.run(play())
