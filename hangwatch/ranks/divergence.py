"""The first step in which ranks issued different numbers of collectives in one group: found while the job runs.

Equal sequence numbers prove nothing: a rank that skipped a collective enters its next one under the same number, and
calls can be mispaired for epochs before they hang. So steps are compared, not numbers.

Steps are aligned by (epoch, batch) of the training loader where every rank knows them, else by their index. What a rank
had issued *when a step began* is compared, relative to the first step that all members share; so only steps that all
have completed count, a group's members may be steps apart, and work in groups of one's own is never compared. A
difference must last for CONFIRM further steps of all members: a background thread that issues a collective on either
side of the border between two steps is no divergence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hangwatch.model import Divergence, Reading, StepEntry
from hangwatch.ranks.joined import in_flight, stood_in
from hangwatch.ranks.paces import LEAST_ALIKE, fit_together, pace_of, paces_of

GroupKey = tuple[str, tuple[int, ...]]
StepKey = tuple[int, int, int]  # (loader, epoch, batch), or (-1, -1, step)
CONFIRM = 2  # further steps that a difference must last: a background call may lie on either side of a step's end


@dataclass
class _Suspicion:
    """A difference that has not lasted long enough yet."""

    divergence: Divergence
    issued: dict[int, int]  # by each member when the step after it began
    seen: int = 1


@dataclass
class _Watched:
    """What is known of one group."""

    base: dict[int, int] = field(default_factory=dict)  # issued by each member at the first step that all share
    last: StepKey | None = None  # the last step that was compared
    suspicion: _Suspicion | None = None
    doubted: bool = False  # a doubtful difference has been reported
    done: bool = False


class DivergenceWatch:
    """Compares the ranks' step ledgers again and again; each group's first divergence is reported once."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, _Watched] = {}

    def update(self, readings: Iterable[Reading], now: float) -> tuple[Divergence, ...]:
        """The divergences that are new in these readings of all ranks' boards."""
        ledgers = {r.identity.rank: r for r in readings if r.identity.rank is not None and r.steps}
        found = []
        for key, members in comparable(ledgers).items():
            watched = self._groups.setdefault(key, _Watched())
            if watched.done:
                continue
            divergence = _look(watched, key, {rank: ledgers[rank] for rank in members}, now)
            if divergence is not None:
                watched.done = not divergence.doubtful
                found.append(divergence)
        return tuple(found)


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
    """All ranks take their steps from batches, or none does."""
    return len({reading.steps[-1].batch is None for reading in readings}) < 2


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
    named = _named(readings)
    return {
        rank: {step_key(entry, named): index for index, entry in enumerate(reading.steps)}
        for rank, reading in readings.items()
    }


def _named(readings: Mapping[int, Reading]) -> bool:
    """Every rank knows its epochs and batches."""
    ends = (entry for reading in readings.values() for entry in (reading.steps[0], reading.steps[-1]))
    return all(entry.epoch is not None and entry.batch is not None for entry in ends)


def step_key(entry: StepEntry, named: bool) -> StepKey:
    """A key for a step that is the same on every rank."""
    if named and entry.epoch is not None and entry.batch is not None:
        return (entry.loader or 0, entry.epoch, entry.batch)
    return (-1, -1, entry.step)


def _look(watched: _Watched, key: GroupKey, readings: Mapping[int, Reading], now: float) -> Divergence | None:
    recent = _recent(watched.last, readings)
    for step in _new_shared(watched, recent):
        begun = {rank: recent[rank][step] for rank in readings}
        issued = {rank: entry.issued.get(key[0], 0) for rank, entry in begun.items()}
        if not watched.base or watched.base.keys() != issued.keys():
            watched.base, watched.suspicion = issued, None
        elif len({issued[rank] - watched.base[rank] for rank in issued}) == 1:
            watched.suspicion = None
        elif watched.suspicion is None:
            divergence = between(key, readings, aligned(readings), watched.last, step, now)
            watched.suspicion = _Suspicion(divergence, issued)
        else:
            watched.suspicion.seen += 1
            lasts = watched.suspicion.seen > CONFIRM and not in_flight(
                readings.values(), key, watched.base, watched.suspicion.issued
            )
            if lasts and not _may_be_its_pace(watched, key[0], readings):
                found = watched.suspicion.divergence
                watched.done = stood_in(readings.values(), key[0])
                if watched.done:
                    return None
                if not _whole_turns(found, readings):
                    return found
                watched.base, watched.suspicion = issued, None
                if not watched.doubted:
                    watched.doubted, watched.last = True, step
                    return replace(found, doubtful=True)
        watched.last = step
    return None


def _may_be_its_pace(watched: _Watched, name: str, readings: Mapping[int, Reading]) -> bool:
    """Ranks accumulate over unlike numbers of forwards, each regularly; or it is too early to tell."""
    newest = [reading.steps[-1] for reading in readings.values()]
    if any(entry.epoch is not None or entry.optimizer_steps is None for entry in newest):
        return False
    if fit_together(pace_of(reading.steps, name) for reading in readings.values()):
        watched.done = True  # steps of one number have no calls in common
        return True
    paces = [paces_of(reading.steps, name) for reading in readings.values()]
    early = any(entry.optimizer_steps for entry in newest) and any(len(found) < LEAST_ALIKE for found in paces)
    return early and all(len(set(found)) < 2 for found in paces)


def _whole_turns(found: Divergence, readings: Mapping[int, Reading]) -> bool:
    """Steps that end in optimizer.step() hold several turns of a loop where it is left out: then no call is missing.

    All counts are multiples of what the ranks usually make in a step, and where calls are recorded, all ranks have made
    the same ones under the same numbers. A rank that issues a common call too often looks the same.
    """
    usuals = {usual(reading.steps, found.group) for reading in readings.values()}
    one = usuals.pop() if len(usuals) == 1 else None
    if found.epoch is not None or not one or any(count < one or count % one for count in found.counts.values()):
        return False
    calls = [
        {call.seq: (call.op, call.frames[:1]) for call in reading.calls if call.group == found.group}
        for reading in readings.values()
    ]
    shared = set.intersection(*(set(made) for made in calls))
    return all(len({made[seq] for made in calls}) == 1 for seq in shared)


Recent = dict[StepKey, StepEntry]


def _recent(last: StepKey | None, readings: Mapping[int, Reading]) -> dict[int, Recent]:
    """For each rank the steps from `last` on, oldest first; all that its ring holds where `last` is not among them.

    A look costs what is new, not what the rings hold.
    """
    named = _named(readings)
    return {rank: _since(last, reading.steps, named) for rank, reading in readings.items()}


def _since(last: StepKey | None, steps: Sequence[StepEntry], named: bool) -> Recent:
    found: list[tuple[StepKey, StepEntry]] = []
    for entry in reversed(steps):
        found.append((step_key(entry, named), entry))
        if found[-1][0] == last:
            break
    return dict(reversed(found))


def _new_shared(watched: _Watched, recent: Mapping[int, Recent]) -> list[StepKey]:
    """Steps that every rank's ring holds and that have not been compared yet, oldest first."""
    rings = list(recent.values())
    if watched.last is not None and all(next(reversed(ring)) == watched.last for ring in rings):
        return []
    shared = [step for step in min(rings, key=len) if all(step in ring for ring in rings)]
    if watched.last in shared:
        return shared[shared.index(watched.last) + 1 :]
    return [step for step in shared if watched.last is None or step > watched.last]


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
    short, more = sides(counts, {rank: _usual_before(readings[rank].steps, places[rank], name) for rank in readings})
    return Divergence(name, members, entry.step, entry.epoch, entry.batch, counts, short, more, now)


def _usual_before(steps: Sequence[StepEntry], index: int | None, name: str) -> int | None:
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


# ------------------------------------------------------------------------------------------ when the job stands still


def first_divergence(readings: Iterable[Reading], now: float = 0.0) -> tuple[Divergence, ...]:
    """Each group's first divergence among the steps that the rings still hold, without waiting for it to last.

    For a job that stands still. The step that a rank is in now is not looked at.
    """
    ledgers = {r.identity.rank: r for r in readings if r.identity.rank is not None and r.steps}
    found = []
    for key, members in comparable(ledgers).items():
        mine = {rank: ledgers[rank] for rank in members}
        if not _same_at_both_ends(key[0], mine) and not stood_in(mine.values(), key[0]):
            divergence = _first_of(key, mine, now)
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
    named = _named(readings)
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
    short, more = sides(counts, {rank: _usual_before(readings[rank].steps, places[rank], key[0]) for rank in counts})
    short = tuple(rank for rank in short if rank not in inside)  # a rank still inside may issue the rest
    return Divergence(key[0], key[1], entry.step, entry.epoch, entry.batch, counts, short, more)


def _after(steps: Sequence[StepEntry], begun: StepEntry) -> StepEntry:
    return steps[next(index for index, entry in enumerate(steps) if entry is begun) + 1]


def _same_at_both_ends(name: str, readings: Mapping[int, Reading]) -> bool:
    """A quick look: between the oldest and the newest step that all share, all ranks issued the same number."""
    named = _named(readings)
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


def _first_of(key: GroupKey, readings: Mapping[int, Reading], now: float) -> Divergence | None:
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
            return between(key, readings, positions, shared[index], shared[index + 1], now)
    return None
