"""Steps of several ranks lined up, and what each rank issued in them: the ground on which ranks are compared.

Equal sequence numbers prove nothing: a rank that skipped a collective enters its next one under the same number, and
calls can be mispaired for epochs before they hang. So steps are compared, not numbers. They are aligned by (epoch,
batch) of the training loader where every rank knows them, else by their index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from hangwatch.model import Divergence, Reading, StepEntry

GroupKey = tuple[str, tuple[int, ...]]
StepKey = tuple[int, int, int]  # (loader, epoch, batch), or (-1, -1, step)


def comparable(ledgers: Mapping[int, Reading]) -> dict[GroupKey, list[int]]:
    """Groups with at least two members among the readings, by name and members, without doubtful names.

    Where steps are batches on one member and forwards on another (one rank loads the data for all), none is like
    another.
    """
    found: dict[GroupKey, list[int]] = {}
    known: dict[tuple[str, int], list[int]] = {}  # ranks of a large job share their tuples of members
    for rank, reading in ledgers.items():
        names = [head.name for head in reading.heads]
        for head in reading.heads:
            place = (head.name, id(head.members))
            if place not in known:
                known[place] = found.setdefault(head.key, [])
            if names.count(head.name) == 1:
                known[place].append(rank)
    members = {key: frozenset(key[1]) for key in found}
    for rank, key in _destroyed(ledgers, members):
        found[key].append(rank)
    mine = {key: [rank for rank in ranks if rank in members[key]] for key, ranks in found.items()}
    return {key: ranks for key, ranks in mine.items() if len(ranks) > 1 and of_one_kind(ledgers[r] for r in ranks)}


def of_one_kind(readings: Iterable[Reading]) -> bool:
    """All ranks take their steps from batches, or none does; also in the oldest step on record.

    A learner's updates are no steps of its workers', whatever all of them draw later.
    """
    ends = {(reading.steps[0].batch is None, reading.steps[-1].batch is None) for reading in readings}
    return len(ends) < 2


def _destroyed(
    ledgers: Mapping[int, Reading], members: Mapping[GroupKey, frozenset[int]]
) -> Iterator[tuple[int, GroupKey]]:
    """Ranks that have destroyed a group, and the group: their steps still tell what they had issued there.

    The name is all that is left of it on their side; the other members say which group it was.
    """
    for rank, reading in ledgers.items():
        alive = {head.name for head in reading.heads}
        for name in reading.steps[-1].issued.keys() - alive:
            keys = [key for key, ranks in members.items() if key[0] == name and rank in ranks]
            if len(keys) == 1:
                yield rank, keys[0]


def aligned(readings: Mapping[int, Reading]) -> dict[int, dict[StepKey, int]]:
    """For each rank: where in its ring a step stands, by a key that means the same step on every rank."""
    named = all_named(readings)
    return {
        rank: {step_key(entry, named): index for index, entry in enumerate(reading.steps)}
        for rank, reading in readings.items()
    }


def all_named(readings: Mapping[int, Reading]) -> bool:
    """Every rank knows its epochs and batches."""
    ends = (entry for reading in readings.values() for entry in (reading.steps[0], reading.steps[-1]))
    return all(entry.epoch is not None and entry.batch is not None for entry in ends)


def step_key(entry: StepEntry, named: bool) -> StepKey:
    """A key for a step that is the same on every rank."""
    if named and entry.epoch is not None and entry.batch is not None:
        return (entry.loader or 0, entry.epoch, entry.batch)
    return (-1, -1, entry.step)


def between(
    key: GroupKey,
    readings: Mapping[int, Reading],
    positions: Mapping[int, dict[StepKey, int]],
    before: StepKey | None,
    after: StepKey,
    now: float,
) -> Divergence:
    """The divergence that happened after step `before` began and ahead of step `after`, both shared by all ranks."""
    name, members = key
    if before is not None and not all(before in ring for ring in positions.values()):
        return _some_time_before(key, readings, positions, after, now)
    for step in _steps_between(positions, before, after):
        counts, entry = _counts(name, readings, positions, step)
        if len(set(counts.values())) > 1:
            break
    places = {rank: positions[rank].get(step) for rank in readings}
    short, more = sides(counts, {rank: usual_before(readings[rank].steps, places[rank], name) for rank in readings})
    return Divergence(name, members, entry.step, entry.epoch, entry.batch, counts, short, more, now)


def usual_before(steps: Sequence[StepEntry], index: int | None, name: str) -> int | None:
    """What a rank usually issued in its steps before that one: it is not measured by itself."""
    return usual(steps[: index + 1] if index is not None else steps, name)


def _some_time_before(
    key: GroupKey,
    readings: Mapping[int, Reading],
    positions: Mapping[int, dict[StepKey, int]],
    after: StepKey,
    now: float,
) -> Divergence:
    """The rings have turned over since the last look: that it happened is known, and in which step is not."""
    name, members = key
    counts = {rank: reading.steps[positions[rank][after]].issued.get(name, 0) for rank, reading in readings.items()}
    rank, position = next(iter((rank, ring[after]) for rank, ring in positions.items()))
    entry = readings[rank].steps[position]
    short, more = sides(counts, {})
    return Divergence(name, members, entry.step, entry.epoch, entry.batch, counts, short, more, now, exact=False)


def _steps_between(
    positions: Mapping[int, dict[StepKey, int]],
    before: StepKey | None,
    after: StepKey,
) -> list[StepKey]:
    """All steps that any rank made between the two shared ones; more than one where epochs have different lengths."""
    found: dict[StepKey, None] = {}
    for ring in positions.values():
        keys: Sequence[StepKey] = list(ring)
        first = ring.get(before, ring[after] - 1) if before is not None else ring[after] - 1
        found.update(dict.fromkeys(keys[max(first, 0) : ring[after]]))
    return sorted(found) or [after]


def _counts(
    name: str, readings: Mapping[int, Reading], positions: Mapping[int, dict[StepKey, int]], step: StepKey
) -> tuple[dict[int, int], StepEntry]:
    """What each rank issued in `step` (0 where it never made that step), and the step's entry."""
    counts: dict[int, int] = {}
    found: StepEntry | None = None
    for rank, reading in readings.items():
        index = positions[rank].get(step)
        if index is None or index + 1 >= len(reading.steps):
            counts[rank] = 0
            continue
        found = reading.steps[index]
        counts[rank] = reading.steps[index + 1].issued.get(name, 0) - found.issued.get(name, 0)
    return counts, found or StepEntry(step[2], None, None, None, 0.0)


def usual(steps: Sequence[StepEntry], name: str) -> int | None:
    """How many collectives of a group a rank issues in most of its steps; None where there is no such number."""
    counts = Counter(after.issued.get(name, 0) - before.issued.get(name, 0) for before, after in pairwise(steps))
    if not counts:
        return None
    count, times = counts.most_common(1)[0]
    return count if 2 * times > counts.total() else None


def sides(counts: Mapping[int, int], norms: Mapping[int, int | None]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ranks that issued fewer than they should, ranks that issued more); both empty where that is not clear.

    The measure is what most ranks did in this step; where no majority exists, what the ranks usually do.
    """
    first, times = Counter(counts.values()).most_common(1)[0]
    norm: int | None = first if 2 * times > len(counts) else None
    if norm is None:
        known = {value for value in norms.values() if value is not None}
        norm = known.pop() if len(known) == 1 else None
    if norm is None or norm not in counts.values():
        return (), ()
    short = tuple(sorted(rank for rank, count in counts.items() if count < norm))
    more = tuple(sorted(rank for rank, count in counts.items() if count > norm))
    return short, more
