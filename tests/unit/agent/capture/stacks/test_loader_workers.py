"""Which sample a worker holds, from py-spy's local variables, and that nothing else is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hangwatch.model import Frame, LoaderFacts, ThreadStack
from hangwatch_agent.capture.stacks import loader_workers
from hangwatch_agent.capture.stacks.py_spy import Dump

LOOP = "/site-packages/torch/utils/data/_utils/worker.py"
FETCH = "/site-packages/torch/utils/data/_utils/fetch.py"
USER = "/home/me/train.py"


def dump(*frames: tuple[str, Mapping[str, str | None] | None]) -> Dump:
    """A dump whose frames, innermost first, have these variables."""
    raw: list[dict[str, Any]] = [
        {
            "filename": file,
            "name": "f",
            "locals": None if values is None else [{"name": name, "repr": text} for name, text in values.items()],
        }
        for file, values in frames
    ]
    return Dump(1, raw=({"frames": raw},))


def test_the_index_in_the_list_that_is_fetched() -> None:
    """Python 3.11: the comprehension of fetch() is a frame of its own."""
    user = (USER, {"idx": "999", "index": "13", "password": "'hunter2'"})
    one, batch = (FETCH, {"idx": "13"}), (FETCH, {"possibly_batched_index": "[12, 13, 14]"})
    loop = (LOOP, {"idx": "3", "index": "[12, 13, 14]", "worker_id": "1"})
    assert loader_workers.sample(dump(user, one, batch, loop)) == "13"
    assert loader_workers.index(dump(user, one, batch, loop)) == 1


def test_the_comprehension_in_fetch_itself() -> None:
    """Python 3.12 and newer: comprehensions have no frame."""
    fetch = (FETCH, {"possibly_batched_index": "[12, 13]", "idx": "13"})
    assert loader_workers.sample(dump((USER, {}), fetch, (LOOP, {"idx": "3"}))) == "13"


@pytest.mark.parametrize(
    ("values", "sample"),
    [
        ({"possibly_batched_index": "[12, 13]"}, "[12, 13]"),
        ({"possibly_batched_index": "[12, 13, ...]"}, "[12, 13, ...]"),
        ({"possibly_batched_index": "7"}, "7"),
        ({"possibly_batched_index": f"[{', '.join(map(str, range(99)))}]"}, f"[{', '.join(map(str, range(32)))}, ...]"),
        ({"possibly_batched_index": "[None, None]"}, "batch 3"),
        ({"possibly_batched_index": "['secret']"}, "batch 3"),
        ({"possibly_batched_index": None}, "batch 3"),
    ],
)
def test_while_it_collates_or_reads_a_stream(values: dict[str, str | None], sample: str) -> None:
    assert loader_workers.sample(dump((FETCH, values), (LOOP, {"idx": "3", "index": "[9]"}))) == sample


def test_while_it_waits_for_work() -> None:
    assert loader_workers.sample(dump((LOOP, {"idx": "3", "index": "[12, 13]"}))) is None
    assert loader_workers.sample(dump((LOOP, None))) is None
    assert loader_workers.sample(Dump(1)) is None
    assert loader_workers.index(Dump(1)) is None


def test_a_user_cannot_fake_the_frames() -> None:
    assert loader_workers.sample(dump(("/home/me/fetch.py", {"idx": "1"}), (LOOP, {"idx": "3"}))) is None


def test_workers_by_their_loop() -> None:
    loop = ThreadStack(1, "MainThread", (Frame(USER, 1, "load"), Frame(LOOP, 9, "_worker_loop")))
    other = ThreadStack(1, "MainThread", (Frame(USER, 1, "_worker_loop"),))
    assert loader_workers.is_worker([other, loop])
    assert not loader_workers.is_worker([other])


def test_whom_a_loader_counts_on() -> None:
    running, over = (
        LoaderFacts(0, 4, epoch=1, worker_pids=(5, 6)),
        LoaderFacts(1, 4, epoch=0, left=True, worker_pids=(7,)),
    )
    assert loader_workers.listed([running, over]) == (5, 6)
    assert loader_workers.listed_index(6, [running, over]) == 1
    assert loader_workers.listed_index(9, [running, over]) is None


def test_workers_by_the_loop_of_a_package_with_a_loader_of_its_own() -> None:
    other = LOOP.replace("torch/utils/data/_utils/worker.py", "streams/loader/worker.py")
    assert loader_workers.is_worker([ThreadStack(1, "MainThread", (Frame(other, 9, "_worker_loop"),))])
