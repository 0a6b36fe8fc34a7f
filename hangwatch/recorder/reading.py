"""From the documents of ranks to the queues of communicators, one document at a time."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from hangwatch.model import Frame
from hangwatch.queues.helpers import with_callers
from hangwatch.queues.model import COMPLETED, SCHEDULED, STARTED, Call, Communicator, Lane, Queues

from . import batches, coalesced, entry_fields, own_time, threads
from .anew import Entry, without_former_groups
from .clocks import clocks
from .document import DumpError
from .runs import of_earlier_runs

_DEFAULT = frozenset({"default_pg", "default"})
_PLACE = itemgetter("filename", "line", "name")
_RANKS = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")
_LAST = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
LARGEST_WORLD = 1 << 20
NS_IN_MS = 1_000_000

Name = tuple[str, str]  # a group's name and description
Config = dict[Name, tuple[int, ...]]


@dataclass
class _Rank:
    """What one document holds."""

    lanes: dict[tuple[str, str, bool], Lane] = field(default_factory=dict)
    config: Config = field(default_factory=dict)
    status: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    identifiers: dict[str, Name] = field(default_factory=dict)
    made_again: frozenset[str] = frozenset()  # names of groups of which the ring held a former one, left out
    threads: tuple[str, ...] = ()  # those that made its calls, where they are several
    lost: bool = False
    timed: bool = False  # a start was recorded by itself
    at_once: bool = False  # a start was recorded with the end, as where one look discovers both
    last_event: int = 0
    last_completion: int = 0
    made_ns: int = 0  # when the dump was made, where it tells that itself
    dated_ns: int = 0  # the date of its file

    @property
    def completed(self) -> bool:
        """A completion was recorded."""
        return any(lane.completed_at for lane in self.lanes.values())

    @property
    def last_call_ns(self) -> int:
        """When the last recorded call was made, in nanoseconds since 1970; 0 where none is recorded."""
        return max((lane.created[-1] for lane in self.lanes.values() if len(lane)), default=0)

    def forget_former(self, name: str, made_ns: int) -> None:
        """Leave out the calls of a group that was made again at that time, where all of them are of the former one."""
        for key, lane in self.lanes.items():
            if key[0] == name and name not in self.made_again and len(lane) and lane.created[-1] < made_ns:
                self.lanes[key] = Lane(lane.rank)

    def set_back(self, ns: int) -> None:
        """Take away by how much the rank's clock is ahead; 0 stays "not known"."""
        for lane in self.lanes.values():
            for row in (lane.created, lane.ended):
                row[:] = array("q", (time and time - ns for time in row))
            lane.completed_at = lane.completed_at and lane.completed_at - ns
        self.last_event = self.last_event and self.last_event - ns
        self.last_completion = self.last_completion and self.last_completion - ns
        self.made_ns, self.dated_ns = self.made_ns and self.made_ns - ns, self.dated_ns and self.dated_ns - ns


class QueueReader:
    """Takes documents with `add`, in any order, and gives the `queues` of all of them."""

    def __init__(self) -> None:
        self.queues_so_far = Queues()
        self._ranks: dict[int, _Rank] = {}
        self._calls: dict[Any, int] = {}
        self._distinct: dict[Call, int] = {}
        self._frames: dict[tuple[str, int, str], Frame] = {}
        self._members: dict[str, tuple[int, ...]] = {}

    def __contains__(self, rank: int) -> bool:
        return rank in self._ranks

    def __len__(self) -> int:
        return len(self._ranks)

    def add(self, rank: int, document: Mapping[str, Any], written_ns: int = 0) -> bool:
        """Read the dump of `rank`. Raises DumpError where the document has not the shape of a dump.

        Of two dumps of a rank the one with the later call counts; the other one may be of an earlier attempt. Returns
        whether this one does. `written_ns` is the date of its file, in nanoseconds since 1970; 0 where it is not known.
        """
        try:
            found = self._read(rank, document)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise DumpError(f"it has not the shape of a dump ({type(error).__name__}: {error})") from error
        if rank in self._ranks and found.last_call_ns <= self._ranks[rank].last_call_ns:
            return False
        self._ranks[rank] = found
        self.queues_so_far.threads[rank] = found.threads
        found.dated_ns = written_ns
        return True

    def spoiled(self, rank: int) -> None:
        """There is a dump of `rank`, and it cannot be read: the rank is not one that left none."""
        self.queues_so_far.unread.add(rank)

    def _read(self, rank: int, document: Mapping[str, Any]) -> _Rank:
        found = _Rank(config=self._config(document), status=_status(document))
        entries = document.get("entries") or []
        if not isinstance(entries, list):
            raise DumpError("it has not the shape of a dump (its entries are no list)")
        found.made_ns = own_time.written_ns(entries)
        found.lost = bool(entries) and int(entries[0].get("record_id") or 0) > 0
        entries, found.made_again = without_former_groups(entries)
        self._entries(rank, entries, found)
        found.threads = threads.enter(entries, found.lanes.values())
        for (name, _, _), lane in found.lanes.items():
            lane.lost = found.lost and name not in found.made_again
        for (name, description, p2p), lane in found.lanes.items():
            if p2p:
                batches.count(entries, lane, found.lanes.get((name, description, False)))
        for lane in found.lanes.values():
            coalesced.bundle(self.queues_so_far.calls, lane)
            coalesced.without_half_a_bundle(self.queues_so_far.calls, lane)
            _count(lane)
        states = document.get("nccl_comm_state")
        if isinstance(states, Mapping):
            told = {str(key): dict(state) for key, state in states.items() if isinstance(state, Mapping)}
            self.queues_so_far.states[rank] = told
        self.queues_so_far.versions[rank] = str(document.get("version", ""))
        return found

    def _entries(self, rank: int, entries: list[Entry], found: _Rank) -> None:
        known: dict[Any, int] = {}  # valid within one document: frames are told apart by identity
        seen: dict[Any, Lane] = {}
        last, completion = 0, 0
        limits: set[int] = set()
        ends = batches.Ends()
        for order, entry in enumerate(entries):
            group = entry.get("process_group") or (entry.get("pg_name", entry.get("pg_id", "0")), "")
            p2p = ends.are_of_peers(group[0], entry, entry_fields.is_p2p(entry))
            place = (group[0], group[1], p2p)
            lane = seen.get(place)
            if lane is None:
                lane = seen[place] = found.lanes.setdefault((str(group[0]), str(group[1]), p2p), Lane(rank))
                if "pg_id" in entry:
                    found.identifiers[str(entry["pg_id"])] = (str(group[0]), str(group[1]))
            key = entry_fields.key(entry)
            call = known.get(key)
            if call is None:
                call = known[key] = self._known_call(key, entry)
            state, started, completed = entry_fields.state(entry)
            created = int(entry.get("time_created_ns") or 0)
            found.timed = found.timed or state & 3 == STARTED or 0 < started != completed
            found.at_once = found.at_once or 0 < started == completed
            last = max(last, created, started, completed)
            completion = max(completion, completed)
            lane.completed_at = max(lane.completed_at, completed)
            if state & 3 != COMPLETED:
                limits.add(int(entry.get("timeout_ms") or 0))
            lane.add(int(entry["p2p_seq_id" if p2p else "collective_seq_id"]), call, state, created, order, completed)
        everything = self.queues_so_far
        limits.add(everything.timeout_ns // NS_IN_MS)
        everything.timeout_ns = min(filter(None, limits), default=0) * NS_IN_MS
        found.last_event, found.last_completion = last, completion

    def _known_call(self, key: tuple[Any, ...], entry: Mapping[str, Any]) -> int:
        """The call, which another entry may have given with frames that are other objects and the same places."""
        content = (*key[:-1], "frames" in entry, tuple(map(_PLACE, entry.get("frames") or ())))
        call = self._calls.get(content)
        if call is None:
            call = self._calls[content] = self._call(entry)
        return call

    def _call(self, entry: Mapping[str, Any]) -> int:
        backend, _, said = str(entry["profiling_name"]).rpartition(":")
        words = said.split()
        source, target = entry_fields.ends(words[1]) if len(words) > 1 else (None, None)
        call = Call(
            op=words[0] if words else "",
            backend=backend,
            inputs=entry_fields.sizes(entry.get("input_sizes")),
            outputs=entry_fields.sizes(entry.get("output_sizes")),
            input_dtypes=entry_fields.dtypes(entry.get("input_dtypes")),
            output_dtypes=entry_fields.dtypes(entry.get("output_dtypes")),
            frames=tuple(map(self._frame, entry.get("frames") or ())),
            source=source,
            target=target,
            traced="frames" in entry,
        )
        index = self._distinct.setdefault(call, len(self.queues_so_far.calls))
        if index == len(self.queues_so_far.calls):
            self.queues_so_far.calls.append(call)
        return index

    def _frame(self, said: Mapping[str, Any]) -> Frame:
        key = (str(said["filename"]), int(said["line"]), str(said["name"]))
        return self._frames.setdefault(key, Frame(*key))

    def _config(self, document: Mapping[str, Any]) -> Config:
        found: Config = {}
        for name, config in dict(document.get("pg_config") or {}).items():
            found[str(name), str(config.get("desc", ""))] = self._ranks_of(config.get("ranks"))
        return found

    def _ranks_of(self, said: Any) -> tuple[int, ...]:
        """Ranks of a configuration: a list, or a list as text. Those of a large job are read once."""
        if not isinstance(said, str):
            return tuple(map(int, said or ()))
        if said not in self._members:
            pairs = [(int(low), int(high or low)) for low, high in _RANKS.findall(said)]
            if sum(high - low + 1 for low, high in pairs) > LARGEST_WORLD:
                raise DumpError("it names more ranks than any job has")
            self._members[said] = tuple(rank for low, high in pairs for rank in range(low, high + 1))
        return self._members[said]

    # ---------------------------------------------------------------------------------------------- all together

    def queues(self) -> Queues:
        """The queues of all documents that were added, but for those of earlier runs."""
        self._forget_former_groups()
        found = self._together()
        if earlier := of_earlier_runs(found):
            for rank in earlier:
                del self._ranks[rank]
            found = self._together()
            found.earlier = earlier
        if ahead := clocks(found):
            found.clocks = ahead
            for rank, clock in ahead.items():
                self._ranks[rank].set_back(clock.ahead_ns)
            found = self._together()
        found.calls = with_callers(found.calls)
        return found

    def _forget_former_groups(self) -> None:
        """A rank that has made no call of a group that was made again still records those of the former one."""
        for known in list(self._ranks.values()):
            for (name, _, _), lane in known.lanes.items():
                if name in known.made_again:
                    for other in self._ranks.values():
                        other.forget_former(name, lane.created[0])

    def _together(self) -> Queues:
        found = self.queues_so_far
        found.ranks = frozenset(self._ranks)
        told = {rank: known.made_ns for rank, known in self._ranks.items() if known.made_ns}
        dated = {rank: known.dated_ns for rank, known in self._ranks.items() if known.dated_ns}
        found.written, assumed = own_time.moments(told, dated, self._ranks)
        found.told, found.assumed = frozenset(told), frozenset(assumed)
        found.unread -= found.ranks
        found.world_size = self._world_size()
        found.last_event = max((known.last_event for known in self._ranks.values()), default=0)
        found.last_completion = max((known.last_completion for known in self._ranks.values()), default=0)
        found.timed = any(known.timed for known in self._ranks.values())
        found.untimed = self._untimed()
        communicators: dict[tuple[str, tuple[int, ...]], Communicator] = {}
        members = _Members(self._ranks, found.world_size)
        for rank, known in sorted(self._ranks.items()):
            for name in _groups(known):
                place = (name[0], members.of(rank, name))
                if rank in place[1]:
                    group = communicators.setdefault(place, Communicator(*place, description=name[1]))
                    _place(group, rank, known, name, members.identifiers)
        found.communicators = list(communicators.values())
        return found

    def _untimed(self) -> set[int]:
        """The ranks without start events, as far as what they completed tells.

        A start that is told with the end may be no event at all, unless a rank that has events tells it so, too.
        """
        both = any(each.timed and each.at_once for each in self._ranks.values())
        told = {rank for rank, each in self._ranks.items() if each.timed or (each.at_once and both)}
        return {rank for rank, each in self._ranks.items() if each.completed} - told

    def _world_size(self) -> int | None:
        sizes = [
            len(ranks)
            for known in self._ranks.values()
            for (name, description), ranks in known.config.items()
            if (name in ("", "0") or description in _DEFAULT) and ranks
        ]
        return max(sizes, default=None)


class _Members:
    """Members of groups: as a rank's configuration says, else all ranks with a call in a group of that name."""

    def __init__(self, ranks: Mapping[int, _Rank], world: int | None) -> None:
        self.ranks = ranks
        self.every_rank = tuple(range(max(world or 0, *(rank + 1 for rank in ranks)))) if ranks else ()
        users: dict[Name, list[int]] = {}
        votes: dict[str, Counter[Name]] = {}
        for rank, known in sorted(ranks.items()):
            for name in dict.fromkeys((group, description) for group, description, _ in known.lanes):
                users.setdefault(name, []).append(rank)
            for identifier, name in known.identifiers.items():
                votes.setdefault(identifier, Counter())[name] += 1
        self.users = {name: tuple(found) for name, found in users.items()}
        self.identifiers = {identifier: count.most_common(1)[0][0] for identifier, count in votes.items()}
        self._named = {rank: {name: said for (name, _), said in known.config.items()} for rank, known in ranks.items()}

    def of(self, rank: int, name: Name) -> tuple[int, ...]:
        said = self._named[rank].get(name[0])
        if said:
            return said
        if name[1] in _DEFAULT:
            return self.every_rank
        for other in self.users.get(name, ()):  # another rank may name the members
            if rank in (said := self._named[other].get(name[0], ())):
                return said
        return self.users.get(name, ())


def _groups(known: _Rank) -> Iterable[Name]:
    """The groups of a rank: those it used, and those it was configured with and has not used."""
    used = dict.fromkeys((group, description) for group, description, _ in known.lanes)
    names = {group for group, _ in used}
    yield from used
    yield from (name for name in known.config if name[0] and name[0] not in names)


def _place(group: Communicator, rank: int, known: _Rank, name: Name, identifiers: Mapping[str, Name]) -> None:
    """Put a rank's lanes into its communicator, with what the status of the recorder adds."""
    group.described |= {rank: name[1]} if name[1] != group.description else {}
    peers = known.lanes.get((*name, True))
    if peers is not None:
        group.peers[rank] = peers
    lane = known.lanes.get((*name, False))
    if lane is None:
        lane = Lane(rank, lost=known.lost, known=not known.lost or _used_no_other(known))
    status = _status_of(known, name, identifiers)
    if status is not None and peers is None:  # torch counts point-to-point calls into the same status
        lane.enqueued, lane.started = max(lane.enqueued, status[0]), max(lane.started, status[1])
        if lane.completed < 0:
            lane.completed = status[2]
        lane.known = True
    group.lanes[rank] = lane


def _used_no_other(known: _Rank) -> bool:
    """Whether the rank used no groups but those of which a call is left: the status has each group ever used."""
    return bool(known.status) and known.status.keys() <= known.identifiers.keys()


def _status_of(known: _Rank, name: Name, identifiers: Mapping[str, Name]) -> tuple[int, int, int] | None:
    own = {group: identifier for identifier, group in known.identifiers.items()}
    if name in own:
        return known.status.get(own[name])
    guessed = (identifier for identifier, group in identifiers.items() if group == name)
    return next((known.status[each] for each in guessed if each in known.status and each not in own.values()), None)


def _status(document: Mapping[str, Any]) -> dict[str, tuple[int, int, int]]:
    found = {}
    for key, said in dict(document.get("pg_status") or {}).items():
        enqueued, started, completed = (int(said.get(name, -1)) for name in _LAST)
        found[str(key)] = (enqueued, started, completed)
    return found


def _count(lane: Lane) -> None:
    """How far the lane is, from its calls: complete up to the first one that is not; unknown where that may be lost."""
    if not len(lane):
        return
    lane.enqueued = lane.numbers[-1]
    place = lane.first_open()
    before = -1 if lane.lost else lane.numbers[0] - 1
    lane.completed = lane.numbers[-1] if place is None else lane.numbers[place - 1] if place else before
    begun = [number for number, state in zip(lane.numbers, lane.states, strict=True) if state & 3 != SCHEDULED]
    lane.started = max(begun, default=lane.completed)
