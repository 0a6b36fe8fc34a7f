"""Long looks give way to others, and miss nothing."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from hangwatch_dashboard import unhurried as looks
from hangwatch_dashboard.unhurried import PAUSE_S, SLICE, unhurried


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    # Not the whole process's `time.sleep`: threads of other tests may still be there.
    monkeypatch.setattr(looks, "time", SimpleNamespace(sleep=found.append))
    return found


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (SLICE, 0), (SLICE + 1, 2), (3 * SLICE, 3)])
def test_a_thread_pauses_after_every_slice(pauses: list[float], count: int, expected: int) -> None:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.extend(unhurried(range(count))))
    thread.start()
    thread.join()
    assert seen == list(range(count))
    assert pauses == [PAUSE_S] * expected


def test_the_event_loop_never_sleeps(pauses: list[float]) -> None:
    assert list(unhurried(range(10 * SLICE))) == list(range(10 * SLICE))
    assert pauses == []
