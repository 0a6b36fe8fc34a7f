"""A rank's collectives as its board tells them: the calls that Python issued, and how far each group is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hangwatch.model import Collective, Collectives, Reading

LAST = 128  # of each group; those that are not completed always come along
NOT_RECORDED = ("send", "recv", "monitored_barrier")  # by torch's flight recorder


def from_board(reading: Reading) -> Collectives:
    """What the board alone tells: heads, and the last calls that Python code issued, with their call paths."""
    return Collectives(reading.heads, last_calls(_retired(reading)), reading.open_calls, "board")


def with_later_calls(taken: Collectives, reading: Reading) -> Collectives:
    """An answer that a rank wrote some time ago, with what its board says of the time since."""
    known = {(call.group, call.seq, call.op in NOT_RECORDED) for call in taken.recent}
    calls = [_since(call, reading) for call in taken.recent]
    calls += [call for call in _retired(reading) if (call.group, call.seq, call.op in NOT_RECORDED) not in known]
    calls.sort(key=lambda call: call.at or 0.0)
    heads, latest = reading.heads or taken.heads, last_calls(calls)
    return replace(taken, heads=heads, recent=latest, open_calls=reading.open_calls, without_gradients=(), tasks=())


def _since(call: Collective, reading: Reading) -> Collective:
    """A call that was under way when the rank answered may have been completed since."""
    done = next((head.completed for head in reading.heads if head.name == call.group), -1)
    return replace(call, retired=True) if call.retired is False and call.seq <= done else call


def _retired(reading: Reading) -> Iterator[Collective]:
    """The calls on the board, with what the heads say about their completion."""
    done = {head.name: head.completed for head in reading.heads}
    for call in reading.calls:
        known = call.op not in NOT_RECORDED and call.group in done
        yield replace(call, retired=call.seq <= done[call.group]) if known else call


def last_calls(calls: Iterable[Collective]) -> tuple[Collective, ...]:
    """The newest calls of each group, and older ones that are not completed."""
    by_group: dict[str, list[Collective]] = defaultdict(list)
    for call in calls:
        by_group[call.group].append(call)
    kept = [call for group in by_group.values() for call in _of_group(group)]
    return tuple(sorted(kept, key=lambda call: call.at or 0.0))


def _of_group(calls: list[Collective]) -> list[Collective]:
    older, newer = calls[:-LAST], calls[-LAST:]
    return [call for call in older if call.retired is False][:LAST] + newer
