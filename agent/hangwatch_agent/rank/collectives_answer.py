"""A rank's answer to "which collectives are you in?": the flight recorder and the board's own ring, joined."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hangwatch.model import Collectives, Reading, WaitingTask
from hangwatch.wire import codec
from hangwatch_agent.board.reader import read_board
from hangwatch_agent.board.recorded import calls_of, joined
from hangwatch_agent.rank.flight_recorder import Recorder
from hangwatch_agent.rank.group import Group


def write_answer(
    path: Path,
    recorder: Recorder,
    groups: Iterable[Group],
    backends: set[str],
    began: float,
    lacking: Sequence[str],
    tasks: tuple[WaitingTask, ...] = (),
) -> None:
    """Write `collectives-PID.json` beside the board at `path`, whole or not at all. Raises OSError or ValueError.

    `began` is this thread's CPU time when it set to work: a rank that answers us is not busy with its training.
    `lacking` are the parameters without a gradient, `tasks` those of an event loop that sleeps.
    """
    reading = read_board(path, steps=0)
    found = replace(gather(reading, recorder, groups, backends), without_gradients=tuple(lacking), tasks=tasks)
    document = codec.encode(found)
    answer = path.with_name(f"collectives-{os.getpid()}.json")
    temporary = answer.with_name(f".{answer.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(json.dumps(document | {"answer_cpu_s": time.thread_time() - began}, allow_nan=False))
    temporary.replace(answer)


def gather(reading: Reading, recorder: Recorder, groups: Iterable[Group], backends: set[str]) -> Collectives:
    """What the recorder has, with what only the board knows; the board's ring alone where the recorder is off."""
    by_name = {group.name: group for group in groups if group.alive}
    return joined(reading, calls_of(recorder.entries(backends), by_name, reading))
