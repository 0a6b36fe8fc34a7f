"""Loader workers: which processes they are, which index each has, and which sample it holds.

The sample comes from local variables of torch's own frames and of no others: py-spy is asked for the variables of all
frames, because it knows no other way, and `stacks.KEPT_LOCALS` are all that is kept of its answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hangwatch.model import LoaderFacts, ThreadStack
from hangwatch.stacks.frames import origin
from hangwatch_agent.capture.stacks.py_spy import Dump

_WORKER_FILE = "torch/utils/data/_utils/worker.py"
_FETCH_FILE = "torch/utils/data/_utils/fetch.py"
LONGEST_BATCH = 120  # characters
_INTEGER = re.compile(r"-?\d{1,18}")
_INTEGERS = re.compile(r"\[-?\d{1,18}(?:, -?\d{1,18})*(?:, ?\.\.\.)?\]?")


def is_worker(stacks: Sequence[ThreadStack]) -> bool:
    """Whether a process runs the worker loop of torch or of a package with a loader of its own, however started."""
    return any(_in_worker_loop(stack) for stack in stacks)


def _in_worker_loop(stack: ThreadStack) -> bool:
    loops = (frame.file for frame in stack.frames if frame.function == "_worker_loop")
    return any(origin(file) in ("torch", "package") for file in loops)


def listed(loaders: Sequence[LoaderFacts]) -> tuple[int, ...]:
    """The workers that loaders count on now: those of an iterator that is over may have ended as they should."""
    return tuple(
        pid
        for loader in loaders
        if loader.epoch >= 0 and not (loader.exhausted or loader.left)
        for pid in loader.worker_pids
    )


def listed_index(pid: int, loaders: Sequence[LoaderFacts]) -> int | None:
    """The index of a worker by its place among the pids that the loader named."""
    return next((loader.worker_pids.index(pid) for loader in loaders if pid in loader.worker_pids), None)


def index(dump: Dump) -> int | None:
    """The index of a worker by its own frame (`worker_id` of torch's worker loop)."""
    text = next((text for name, text in _values(dump, _WORKER_FILE) if name == "worker_id"), "")
    return int(text) if _INTEGER.fullmatch(text) else None


def sample(dump: Dump) -> str | None:
    """What a worker is fetching: "17" (index in the dataset), "[16, 17]" (those of the batch), "batch 4" (of a stream).

    None while it waits for work, and where the dump holds no local variables.
    """
    fetching = dict(reversed(list(_values(dump, _FETCH_FILE))))  # of equal names the innermost counts
    if _INTEGER.fullmatch(fetching.get("idx", "")):
        return fetching["idx"]
    batch = fetching.get("possibly_batched_index", "")
    if _INTEGER.fullmatch(batch) or _INTEGERS.fullmatch(batch):
        return batch if len(batch) <= LONGEST_BATCH else f"{batch[: batch.rindex(',', 0, LONGEST_BATCH)]}, ...]"
    number = dict(_values(dump, _WORKER_FILE)).get("idx", "")
    return f"batch {number}" if fetching and _INTEGER.fullmatch(number) else None


def _values(dump: Dump, file: str) -> Iterator[tuple[str, str]]:
    """Names and texts of the integers in torch's frames of one file, innermost frame first."""
    for thread in dump.raw:
        for frame in thread["frames"]:
            if frame["filename"].endswith(file):
                yield from _kept(frame["locals"] or ())


def _kept(variables: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for variable in variables:
        name, text = variable["name"], variable["repr"] or ""
        if name in ("idx", "index", "possibly_batched_index", "worker_id"):
            yield name, text
