"""The first step in which ranks issued different numbers of collectives, of a job that stands still.

What the rings hold is compared at once, without waiting for a difference to last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from hangwatch.model import Divergence, Reading, StepEntry
from hangwatch.ranks.joined import stood_in
from hangwatch.ranks.shared_steps import (
    GroupKey,
    StepKey,
    aligned,
    all_named,
    between,
    comparable,
    of_one_kind,
    sides,
    step_key,
    usual_before,
)


def first_divergence(readings: Iterable[Reading]) -> tuple[Divergence, ...]:
    """Each group's first divergence among the steps that the rings still hold, without waiting for it to last.

    For a job that stands still. The step that a rank is in now is not looked at.
    """
    ledgers = {r.identity.rank: r for r in readings if r.identity.rank is not None and r.steps}
    found = []
    for key, members in comparable(ledgers).items():
        mine = {rank: ledgers[rank] for rank in members}
        if not _same_at_both_ends(key[0], mine) and not stood_in(mine.values(), key[0]):
            divergence = _first_of(key, mine)
            if divergence is not None:
                found.append(divergence)
    return tuple(sorted(found, key=lambda divergence: divergence.step))


def unfinished(readings: Mapping[int, Reading], key: GroupKey, issued: Mapping[int, int]) -> Divergence | None:
    """The divergence in the oldest step that a rank is still in; `issued` are the counts of this moment.

    Some have finished that step, others are in it. Those in it can issue still more, but have issued more already than
    a rank that has finished it: then the numbers of this step differ, whatever comes.
    """
    if len(readings) < 2 or not of_one_kind(readings.values()) or stood_in(readings.values(), key[0]):
        return None
    named = all_named(readings)
    oldest = min(step_key(reading.steps[-1], named) for reading in readings.values())
    counts, inside, entry = {}, set(), None
    for rank, reading in readings.items():
        begun = _find(reading.steps, oldest, named)
        if begun is None:
            continue
        last = begun is reading.steps[-1]
        after = issued[rank] if last else _after(reading.steps, begun).issued.get(key[0], 0)
        counts[rank] = after - begun.issued.get(key[0], 0)
        entry = begun
        if last:
            inside.add(rank)
    through = [rank for rank in counts if rank not in inside]
    if entry is None or not through or not inside:
        return None
    if max(counts[rank] for rank in inside) <= min(counts[rank] for rank in through):
        return None
    places = {rank: _index(readings[rank].steps, oldest, named) for rank in counts}
    short, more = sides(counts, {rank: usual_before(readings[rank].steps, places[rank], key[0]) for rank in counts})
    short = tuple(rank for rank in short if rank not in inside)  # a rank still inside may issue the rest
    return Divergence(key[0], key[1], entry.step, entry.epoch, entry.batch, counts, short, more)


def _after(steps: Sequence[StepEntry], begun: StepEntry) -> StepEntry:
    return steps[next(index for index, entry in enumerate(steps) if entry is begun) + 1]


def _same_at_both_ends(name: str, readings: Mapping[int, Reading]) -> bool:
    """A quick look: between the oldest and the newest step that all share, all ranks issued the same number."""
    named = all_named(readings)
    ends = {(step_key(r.steps[0], named), step_key(r.steps[-1], named)) for r in readings.values()}
    oldest, newest = max(first for first, _ in ends), min(last for _, last in ends)
    issued = set()
    for reading in readings.values():
        start, end = (_find(reading.steps, step, named) for step in (oldest, newest))
        if start is None or end is None:
            return False
        issued.add(end.issued.get(name, 0) - start.issued.get(name, 0))
    return len(issued) == 1


def _find(steps: Sequence[StepEntry], step: StepKey, named: bool) -> StepEntry | None:
    index = _index(steps, step, named)
    return steps[index] if index is not None else None


def _index(steps: Sequence[StepEntry], step: StepKey, named: bool) -> int | None:
    index = bisect_left(steps, step, key=lambda entry: step_key(entry, named))
    return index if index < len(steps) and step_key(steps[index], named) == step else None


def _first_of(key: GroupKey, readings: Mapping[int, Reading]) -> Divergence | None:
    positions = aligned(readings)
    rings = list(positions.values())
    shared = [step for step in min(rings, key=len) if all(step in ring for ring in rings)]
    issued = [
        {rank: readings[rank].steps[positions[rank][step]].issued.get(key[0], 0) for rank in readings}
        for step in shared
    ]
    if shared and len(set(issued[-1].values())) == 1:
        return None  # by now all have issued equally many: a call lay on either side of the first step on record
    for index in range(len(shared) - 1, -1, -1):  # from the end: what evened out again was no divergence
        if len({issued[index][rank] - issued[0][rank] for rank in readings}) == 1:
            if index + 1 == len(shared):
                return None
            return between(key, readings, positions, shared[index], shared[index + 1], now=0.0)
    return None
