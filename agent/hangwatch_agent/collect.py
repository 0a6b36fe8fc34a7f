"""A rank's answer to "which collectives are you in?": the flight recorder and the board's own ring, joined."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from hangwatch.model import Collective, Collectives, GroupHead, Reading
from hangwatch.ranks.flight_recorder import completed_through
from hangwatch.wire import codec
from hangwatch_agent import board
from hangwatch_agent.groups import Group
from hangwatch_agent.recorder import Recorder, collective

LAST = 128  # of each group; those that are not completed always come along
NOT_RECORDED = ("send", "recv", "monitored_barrier")


def write_answer(path: Path, recorder: Recorder, groups: Iterable[Group], backends: set[str], began: float) -> None:
    """Write `collectives-PID.json` beside the board at `path`, whole or not at all. Raises OSError or ValueError.

    `began` is this thread's CPU time when it set to work: a rank that answers us is not busy with its training.
    """
    reading = board.read_board(path, steps=0)
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
    return Collectives(_caught_up(reading.heads, recorded), _last(joined), reading.open_calls, "flight-recorder")


def from_board(reading: Reading) -> Collectives:
    """What the board alone tells: heads, and the last calls that Python code issued, with their call paths."""
    return Collectives(reading.heads, _last(_retired(reading)), reading.open_calls, "board")


def with_later_calls(taken: Collectives, reading: Reading) -> Collectives:
    """An answer that a rank wrote some time ago, with what its board says of the time since."""
    known = {(call.group, call.seq, call.op in NOT_RECORDED) for call in taken.recent}
    calls = [_since(call, reading) for call in taken.recent]
    calls += [call for call in _retired(reading) if (call.group, call.seq, call.op in NOT_RECORDED) not in known]
    calls.sort(key=lambda call: call.at or 0.0)
    return replace(taken, heads=reading.heads or taken.heads, recent=_last(calls), open_calls=reading.open_calls)


def _since(call: Collective, reading: Reading) -> Collective:
    """A call that was under way when the rank answered may have been completed since."""
    done = next((head.completed for head in reading.heads if head.name == call.group), -1)
    return replace(call, retired=True) if call.retired is False and call.seq <= done else call


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


def _retired(reading: Reading) -> Iterator[Collective]:
    """The calls on the board, with what the heads say about their completion."""
    done = {head.name: head.completed for head in reading.heads}
    for call in reading.calls:
        known = call.op not in NOT_RECORDED and call.group in done
        yield replace(call, retired=call.seq <= done[call.group]) if known else call


def _last(calls: Iterable[Collective]) -> tuple[Collective, ...]:
    by_group: dict[str, list[Collective]] = defaultdict(list)
    for call in calls:
        by_group[call.group].append(call)
    kept = [call for group in by_group.values() for call in _of_group(group)]
    return tuple(sorted(kept, key=lambda call: call.at or 0.0))


def _of_group(calls: list[Collective]) -> list[Collective]:
    older, newer = calls[:-LAST], calls[-LAST:]
    return [call for call in older if call.retired is False][:LAST] + newer
