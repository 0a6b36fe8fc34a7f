"""What the watchdog says of ranks without a dump, as queues: one call that is open, and how far the rank is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hangwatch.ranks.ledger import family
from hangwatch.stacks.frames import origin

from ..queues.model import RETIRED, SCHEDULED, STARTED, Call, Communicator, Lane, Queues
from . import desync
from .model import UNNUMBERED, Logs, Progress, Timeout
from .task_lines import placed

_DEFAULT = ("0", "default_pg")
_APART = 8  # numbers by which a broadcast's root, who need not wait, may be ahead of its group
_ENOUGH = 2  # ranks of a group that tell how far apart its ranks are


def completed(queues: Queues, logs: Logs) -> Queues:
    """The queues with a lane for each rank that has lines and no dump; calls that torch gave up are marked."""
    logs = placed(logs)
    size = world_size(queues, logs)
    told = logs.timeouts or logs.progress
    sized = bool(queues.world_size or logs.communicators or desync.ranks(logs) or _all_speak(logs))
    if told:
        queues.world_size = size
    dumped = queues.ranks
    for timeout, progress in _told(logs):
        group = _group(queues, progress, timeout.rank if timeout else progress.rank, size, sized=sized)
        if progress.rank in dumped:
            _mark(group, progress.rank, timeout)
        else:
            _lane(queues, group, progress, timeout)
            _note_starts(queues, progress)
    for group in queues.communicators:
        _add_members(group, logs, size or 0)
    if told:
        queues.ranks = dumped | {far.rank for far in logs.progress} | {each.rank for each in logs.timeouts}
        if not dumped:
            queues.ranks, queues.record = queues.ranks | logs.stalls.keys(), "line of the watchdog"
    return queues


def world_size(queues: Queues, logs: Logs) -> int | None:
    """The number of ranks, by the dumps, by NCCL's communicators, or by the highest rank that is named."""
    sizes = [communicator.size for communicator in logs.communicators.values()]
    named = [rank + 1 for rank in (*logs.ranks, *queues.ranks, *desync.ranks(logs), *_speakers(logs))]
    return max((queues.world_size or 0, *sizes, *named, *_spread(logs.timeouts)), default=0) or None


def _speakers(logs: Logs) -> Iterable[int]:
    """The ranks with output of their own, where each from 0 on has some: a text may name a rank that is none."""
    return sorted(logs.last_words) if _all_speak(logs) else ()


def _all_speak(logs: Logs) -> bool:
    return len(logs.last_words) > 1 and max(logs.last_words) + 1 == len(logs.last_words)


def _spread(timeouts: Iterable[Timeout]) -> Iterator[int]:
    """Sizes of groups, which are what a reduce_scatter takes by what it makes, and the reverse of an all_gather."""
    for timeout in timeouts:
        if timeout.given and timeout.made:
            more, less = max(timeout.given, timeout.made), min(timeout.given, timeout.made)
            if family(timeout.op) in ("reduce_scatter", "all_gather") and more % less == 0:
                yield more // less


def to_peers(timeout: Timeout) -> bool:
    """Sends and receives, alone or in a batch: their numbers count a rank's own calls, and compare with no other's."""
    return timeout.op in ("SEND", "RECV", "COALESCED")


def of_no_group(logs: Logs) -> list[Timeout]:
    """Calls that were given up in lines without a group (before torch 2.3), where their numbers are of several groups.

    So are those without numbers (before torch 2.0), which may be of any.

    In one group, ranks that wait for another one give up the same number: what is complete on one was enqueued by all.
    """
    placed = {(far.rank, far.number) for far in logs.progress}
    bare = [each for each in logs.timeouts if (each.rank, each.number) not in placed and not to_peers(each)]
    if any(each.number == UNNUMBERED for each in bare):
        return bare
    lowest: dict[int, int] = {}
    for each in bare:
        lowest[each.rank] = min(each.number, lowest.get(each.rank, each.number))
    return bare if lowest and max(lowest.values()) - min(lowest.values()) > _APART else []


def _told(logs: Logs) -> list[tuple[Timeout | None, Progress]]:
    """Each rank's progress in a group with the call that was given up there; a call without such a line by itself."""
    found: list[tuple[Timeout | None, Progress]] = []
    used: set[int] = set()
    for progress in logs.progress:
        timeout = next(
            (each for each in logs.timeouts if (each.rank, each.number) == (progress.rank, progress.number)), None
        )
        if timeout is not None:
            used.add(id(timeout))
        found.append((timeout, progress))
    used.update(map(id, of_no_group(logs)))
    for timeout in logs.timeouts:
        if id(timeout) not in used:
            far = Progress(timeout.rank, *_DEFAULT, timeout.number, timeout.number - 1, number=timeout.number)
            found.append((timeout, far))
    between = {(far.rank, far.group) for timeout, far in found if timeout is not None and to_peers(timeout)}
    return [(timeout, far) for timeout, far in found if (far.rank, far.group) not in between]


def _group(queues: Queues, progress: Progress, rank: int, size: int | None, *, sized: bool) -> Communicator:
    """The group of a line. Its size is guessed where neither dumps nor lines of NCCL tell it."""
    default = progress.group == "0" or progress.description == "default_pg"
    for group in queues.communicators:
        if group.name == progress.group and (rank in group.members or not default):
            if rank not in group.members:
                group.members = tuple(sorted((*group.members, rank)))
            return group
    members = tuple(range(size or rank + 1)) if default else (rank,)
    description = progress.description or ("default_pg" if default else "")
    group = Communicator(progress.group, members, description, guessed=not (default and sized))
    queues.communicators.append(group)
    return group


def _add_members(group: Communicator, logs: Logs, world: int) -> None:
    """Members that no line names: the lines of the others say their places, which leave some free between them.

    That holds for groups whose ranks lie at equal distances, as those of a mesh do.
    """
    told = {far.place: far.rank for far in logs.progress if far.group == group.name and far.place is not None}
    if not group.guessed or set(told.values()) != set(group.members) or len(told) < _ENOUGH:
        return
    first, second, *_ = sorted(told)
    apart, rest = divmod(told[second] - told[first], second - first)
    members = {place: told[first] + (place - first) * apart for place in range(max(*told, _size(group, logs) - 1) + 1)}
    regular = not rest and apart > 0 and all(members[place] == rank for place, rank in told.items())
    if regular and members[0] >= 0 and max(members.values()) < world:
        group.members = tuple(members.values())


def _size(group: Communicator, logs: Logs) -> int:
    """The size of a group by the calls that were given up in it; 0 where they do not tell."""
    numbers = {(far.rank, far.number) for far in logs.progress if far.group == group.name}
    return max(_spread(each for each in logs.timeouts if (each.rank, each.number) in numbers), default=0)


def _mark(group: Communicator, rank: int, timeout: Timeout | None) -> None:
    lane = group.lanes.get(rank)
    if lane is not None and timeout is not None:
        for place in lane.places(timeout.number):
            lane.states[place] |= RETIRED


def _lane(queues: Queues, group: Communicator, progress: Progress, timeout: Timeout | None) -> None:
    lane = group.lanes.setdefault(progress.rank, Lane(progress.rank, lost=True))
    lane.enqueued = max(lane.enqueued, progress.enqueued)
    lane.started, lane.completed = max(lane.started, progress.started), max(lane.completed, progress.completed)
    if timeout is not None and not lane.places(timeout.number):
        queues.calls.append(_call(timeout))
        state = STARTED if progress.started >= timeout.number else SCHEDULED
        lane.add(timeout.number, len(queues.calls) - 1, state | RETIRED, 0, len(lane))


def _note_starts(queues: Queues, progress: Progress) -> None:
    """Newer versions say which call was started last, and -1 where start events are not recorded."""
    if progress.started >= 0:
        queues.timed = True
    else:
        queues.untimed.add(progress.rank)


def _call(timeout: Timeout) -> Call:
    name = timeout.op.lower()
    return Call(
        family(name) or name,
        "nccl",
        ((timeout.given,),) if timeout.given is not None else (),
        ((timeout.made,),) if timeout.made is not None else (),
        frames=tuple(frame for frame in timeout.frames if origin(frame.file)),
    )
