"""A rank's answer to "which collectives are you in?": the flight recorder and the board's own ring, joined."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hangwatch.model import Collective, Collectives, GroupHead, Reading
from hangwatch.ranks.flight_recorder import completed_through
from hangwatch.wire import codec
from hangwatch_agent.board.collectives import NOT_RECORDED, from_board, last_calls
from hangwatch_agent.board.reader import read_board
from hangwatch_agent.rank.flight_recorder import Recorder, collective
from hangwatch_agent.rank.groups import Group


def write_answer(path: Path, recorder: Recorder, groups: Iterable[Group], backends: set[str], began: float) -> None:
    """Write `collectives-PID.json` beside the board at `path`, whole or not at all. Raises OSError or ValueError.

    `began` is this thread's CPU time when it set to work: a rank that answers us is not busy with its training.
    """
    reading = read_board(path, steps=0)
    document = codec.encode(gather(reading, recorder, groups, backends))
    answer = path.with_name(f"collectives-{os.getpid()}.json")
    temporary = answer.with_name(f".{answer.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(json.dumps(document | {"answer_cpu_s": time.thread_time() - began}, allow_nan=False))
    temporary.replace(answer)


def gather(reading: Reading, recorder: Recorder, groups: Iterable[Group], backends: set[str]) -> Collectives:
    """What the recorder has, with what only the board knows; the board's ring alone where the recorder is off."""
    by_name = {group.name: group for group in groups if group.alive}
    recorded = [collective(entry, by_name) for entry in recorder.entries(backends)]
    if not recorded:
        return from_board(reading)
    on_board = {(call.group, call.seq): call for call in reading.calls if call.op not in NOT_RECORDED}
    joined = [_joined(each, on_board) for each in recorded]
    joined += [call for call in reading.calls if call.op in NOT_RECORDED]
    joined.sort(key=lambda call: call.at or 0.0)
    return Collectives(_caught_up(reading.heads, recorded), last_calls(joined), reading.open_calls, "flight-recorder")


def _caught_up(heads: Iterable[GroupHead], recorded: Iterable[Collective]) -> tuple[GroupHead, ...]:
    """The recorder's status, from which the heads on the board are made, may be one behind its entries."""
    calls: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for call in recorded:
        if call.op not in NOT_RECORDED:
            calls[call.group].append((call.seq, call.retired is not False))
    through = {name: completed_through(own) for name, own in calls.items()}
    return tuple(
        replace(head, completed=max(head.completed, min(through.get(head.name, -1), head.issued))) for head in heads
    )


def _joined(recorded: Collective, on_board: dict[tuple[str, int], Collective]) -> Collective:
    """The recorder knows frames and completion; the board the user's name of the op, the other end, and the step."""
    seen = on_board.get((recorded.group, recorded.seq))
    if seen is None:
        return recorded
    return replace(
        recorded,
        op=seen.op,
        peer=seen.peer,
        thread_id=seen.thread_id,
        thread_name=seen.thread_name,
        frames=recorded.frames or seen.frames,
        step=seen.step,
    )
