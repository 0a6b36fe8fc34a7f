"""The first step in which ranks issued different numbers of collectives in one group: found while the job runs.

What a rank had issued *when a step began* is compared, relative to the first step that all members share; so only steps
that all have completed count, a group's members may be steps apart, and work in groups of one's own is never compared.
A difference must last for CONFIRM further steps of all members: a background thread that issues a collective on either
side of the border between two steps is no divergence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile

from hangwatch.model import Collective, Divergence, Frame, Reading, StepEntry
from hangwatch.ranks.begun_anew import loader_error
from hangwatch.ranks.issuers import MAIN
from hangwatch.ranks.joined import asks_join, stood_in
from hangwatch.ranks.paces import LEAST_ALIKE, fit_together, pace_of, paces_of
from hangwatch.ranks.shared_steps import GroupKey, StepKey, aligned, all_named, between, comparable, step_key, usual
from hangwatch.stacks.frames import name_of, of_program, user_frame

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
                of_threads = _by_other_threads(key, [ledgers[rank] for rank in members])
                watched.done = of_threads or not divergence.doubtful
                found += [] if of_threads else [divergence]
        return tuple(found)


def _by_other_threads(key: GroupKey, readings: Sequence[Reading]) -> bool:
    """On a rank, all calls in that group come from a thread that makes no others, beside the main one that does.

    The steps do not divide such calls, as those of a checkpoint that is written meanwhile.
    """
    return any(
        bool(own := _threads(reading, lambda name: name == key[0]))
        and MAIN in (others := _threads(reading, lambda name: name != key[0]))
        and own.isdisjoint(others)
        for reading in readings
    )


def _threads(reading: Reading, asked: Callable[[str], bool]) -> set[str]:
    return {call.thread_name for call in reading.calls if call.thread_name and asked(call.group)}


def _look(watched: _Watched, key: GroupKey, readings: Mapping[int, Reading], now: float) -> Divergence | None:
    if watched.base.keys() < readings.keys():  # a rank that began its first step after the others has it on record
        watched.base, watched.suspicion, watched.last = {}, None, None
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
            lasts = watched.suspicion.seen > CONFIRM and not _in_flight(
                readings.values(), key, watched.base, watched.suspicion.issued
            )
            if lasts and not _may_be_its_pace(watched, key[0], readings):
                found = watched.suspicion.divergence
                watched.done = stood_in(readings.values(), key[0]) or asks_join(readings.values(), key[0])
                if watched.done:
                    return None
                if not any(explains(found, readings) for explains in (_whole_turns, between_rounds, _draws_anew)):
                    return found
                watched.base, watched.suspicion = issued, None
                if not watched.doubted:
                    watched.doubted, watched.last = True, step
                    return replace(found, doubtful=True)
        watched.last = step
    return None


def _in_flight(readings: Iterable[Reading], key: GroupKey, base: Mapping[int, int], issued: Mapping[int, int]) -> bool:
    """Ranks issued more in a group than others from `base` on, have gone on since, and these calls are incomplete.

    So their steps do not wait for them, but another thread, as that of a checkpoint: the others may make them yet.
    """
    least = min(issued[rank] - base[rank] for rank in issued)
    more = {rank: count for rank, count in issued.items() if count - base[rank] > least}
    heads = {reading.identity.rank: head for reading in readings for head in reading.heads if head.key == key}
    return all(rank in heads and 0 <= heads[rank].completed < more[rank] <= heads[rank].issued for rank in more)


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
    return all(map(_alike, _by_number(found, readings, _path).values()))


def _draws_anew(found: Divergence, readings: Mapping[int, Reading]) -> bool:
    """The loader of a rank that issued fewer raised an error in its last step of that epoch, and was begun anew.

    Its batches then go by the name of another epoch, and those that it reads a second time hold no calls.
    """
    epoch, own = found.epoch, [readings[rank] for rank in found.short if rank in readings]
    return epoch is not None and any(loader_error(reading, epoch) is not None for reading in own)


def between_rounds(found: Divergence, readings: Mapping[int, Reading]) -> bool:
    """Most steps hold no call of the group, and since that step all ranks made the next calls alike, of several places.

    How many steps a rank makes between two rounds of calls may be its own affair: a search trains one model for longer
    than another. A rank that left out a whole round looks the same; one that left out a call of it has no counterpart
    for its next one.
    """
    if found.epoch is not None or any(usual(reading.steps, found.group) != 0 for reading in readings.values()):
        return False
    if _some_went_apart(found, readings):
        return True
    begun = [entry for reading in readings.values() for entry in reading.steps if entry.step == found.step]
    after = min((entry.issued.get(found.group, 0) for entry in begun), default=0)
    made = _by_number(found, readings, _line)
    since = [made[seq] for seq in sorted(made) if seq > after]
    alike = list(takewhile(_alike, since))
    times = Counter(call for calls in made.values() for call in set(calls.values()))
    of_rounds = {call for calls in alike for call in calls.values() if times[call] > 1}
    first_unlike = since[len(alike)] if len(alike) < len(since) else None
    return len(of_rounds) > 1 and not (first_unlike and _has_same_sides(found, first_unlike))


def _some_went_apart(found: Divergence, readings: Mapping[int, Reading]) -> bool:
    """Since that step some ranks, not all, communicate in a smaller group, as none did before: they train on there."""
    members = frozenset(found.members)
    apart = sum(any(members > {*group} for group in _new_groups(found, reading)) for reading in readings.values())
    return 0 < apart < len(readings)


def _new_groups(found: Divergence, reading: Reading) -> Iterator[tuple[int, ...]]:
    """The members of the groups in which a rank made its first call after it had begun that step."""
    begun = next((entry.issued for entry in reading.steps if entry.step == found.step), None)
    if begun is not None:
        yield from (head.members for head in reading.heads if head.issued > 0 and not begun.get(head.name))


def _has_same_sides(found: Divergence, calls: Mapping[int, Hashable]) -> bool:
    """No rank that issued the fewest in that step made the call of a rank that issued more."""
    least = min(found.counts.values())
    few = {call for rank, call in calls.items() if found.counts[rank] == least}
    return few.isdisjoint(call for rank, call in calls.items() if found.counts[rank] != least)


def _alike(calls: Mapping[int, Hashable]) -> bool:
    return len(set(calls.values())) == 1


def _by_number(
    found: Divergence, readings: Mapping[int, Reading], place: Callable[[Collective], Hashable]
) -> dict[int, dict[int, Hashable]]:
    """The numbers of calls that all ranks have on record, and what each rank called under it, and from where."""
    calls = {
        rank: {call.seq: (call.op, place(call)) for call in reading.calls if call.group == found.group}
        for rank, reading in readings.items()
    }
    shared = set.intersection(*(set(made) for made in calls.values()))
    return {seq: {rank: made[seq] for rank, made in calls.items()} for seq in shared}


def _line(call: Collective) -> Hashable:
    """The user's line, which ranks of other roles come to by ways of their own."""
    where = user_frame(call.frames)
    return (name_of(where.function), where.line) if where is not None else None


def _path(call: Collective) -> Hashable:
    return _way(call.frames)


@lru_cache(maxsize=4096)
def _way(frames: tuple[Frame, ...]) -> tuple[tuple[str, int], ...]:
    """The path of a call, the same on nodes that have the program in different folders."""
    return tuple((name_of(each.function), each.line) for each in of_program(frames))


Recent = dict[StepKey, StepEntry]


def _recent(last: StepKey | None, readings: Mapping[int, Reading]) -> dict[int, Recent]:
    """For each rank the steps from `last` on, oldest first; all that its ring holds where `last` is not among them.

    A look costs what is new, not what the rings hold.
    """
    named = all_named(readings)
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
