"""The queues of a job's communicators: what each rank has enqueued, and how far its device has come.

One model for dumps and for live evidence. A `Lane` is one rank's queue in one communicator, oldest call first, as
parallel arrays (about 40 bytes a call); calls that are alike share one `Call`. Numbers are those of torch: they count
a communicator's collectives, usually from 1, and coalesced calls share one. Times are nanoseconds since 1970, 0 for
"not known".
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangwatch.model import Frame, every_rank
from hangwatch.stacks.frames import behind_the_call, user_frame

SCHEDULED, STARTED, COMPLETED, RETIRED = 0, 1, 2, 4  # the last one is added to one of the others
STATE = 3  # mask for the first three
COUNTERPARTS = {"send": "recv", "recv": "send"}
Message = tuple[str, int | None, int | None]  # send or recv, and from which rank of the group to which
UNDESCRIBED = "undefined"  # how torch describes a group to which the program gave no description


@dataclass(frozen=True, slots=True)
class Call:
    """What was called, with what and from where; all entries that agree in it share one object."""

    op: str
    backend: str = ""
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    source: int | None = None  # rank within the group (point-to-point)
    target: int | None = None
    # What called the helper that made the call, where the record has calls of it from several places.
    caller: Frame | None = field(default=None, compare=False)
    traced: bool = False  # the record tells the frames: where there are none, a thread of torch's own made the call

    @property
    def message(self) -> Message:
        """What a send or receive is, and between which ranks of the group."""
        return self.op, self.source, self.target

    @property
    def counterpart(self) -> Message:
        """What the other end of a send or receive has to be."""
        return COUNTERPARTS.get(self.op, "send"), self.source, self.target

    @property
    def where(self) -> Frame | None:
        """The user's line that made the call, else that of torch's which did, as of FSDP."""
        return user_frame(self.frames) or behind_the_call(self.frames)


@dataclass(slots=True)
class Lane:
    """One rank's queue in one communicator: collectives, or point-to-point calls.

    `order` is the call's place among all calls of the rank, `ended` when its completion was discovered. `steps` are
    the iterations in which live ranks made the calls, -1 for "not known"; dumps know none. `threads` are the places of
    the threads that made the calls in `Queues.threads`; empty where one thread made all calls of the rank. `lost` says
    that older calls are no longer recorded. `enqueued` is the highest number, also where its entry is not recorded.
    """

    rank: int
    numbers: array[int] = field(default_factory=lambda: array("q"))
    calls: array[int] = field(default_factory=lambda: array("l"))
    states: bytearray = field(default_factory=bytearray)
    created: array[int] = field(default_factory=lambda: array("q"))
    order: array[int] = field(default_factory=lambda: array("l"))
    ended: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("l"))
    threads: array[int] = field(default_factory=lambda: array("h"))
    enqueued: int = -1
    started: int = -1
    completed: int = -1
    completed_at: int = 0  # when the last completion was discovered
    lost: bool = False
    known: bool = True  # false: the record does not tell how far the rank is here

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, number: int, call: int, state: int, created: int, order: int, ended: int = 0) -> None:
        self.numbers.append(number)
        self.calls.append(call)
        self.states.append(state)
        self.created.append(created)
        self.order.append(order)
        self.ended.append(ended)

    def forget(self, count: int) -> None:
        """Leave out the oldest calls."""
        times = (self.created, self.ended)
        for row in (self.numbers, self.calls, self.states, *times, self.order, self.steps, self.threads):
            del row[:count]

    def done(self, place: int) -> bool:
        return self.states[place] & STATE == COMPLETED

    def first_open(self) -> int | None:
        """The place of the first call that is not complete."""
        return next((place for place, state in enumerate(self.states) if state & STATE != COMPLETED), None)

    def places(self, number: int) -> range:
        """The places of the calls of that number: several where they were coalesced."""
        first = bisect_left(self.numbers, number)
        last = first
        while last < len(self.numbers) and self.numbers[last] == number:
            last += 1
        return range(first, last)

    def state(self, number: int) -> int | None:
        """How far the calls of that number are, the least of them; None where they are not recorded."""
        found = [self.states[place] & STATE for place in self.places(number)]
        return min(found) if found else None


@dataclass(slots=True)
class Communicator:
    """A process group's communicator. `lanes` and `peers` lack members without a dump.

    `guessed` says that the members are inferred from the ranks that are known.
    """

    name: str
    members: tuple[int, ...]
    description: str = ""
    described: dict[int, str] = field(default_factory=dict)  # by the ranks that describe it otherwise
    lanes: dict[int, Lane] = field(default_factory=dict)
    peers: dict[int, Lane] = field(default_factory=dict)  # point-to-point calls
    guessed: bool = False

    @property
    def default(self) -> bool:
        """Whether it is the group of all ranks, which torch makes first."""
        return self.description in ("default_pg", "default") or (self.name == "0" and not self.description)

    def described_by(self, rank: int) -> str:
        """What `rank` calls it, "" where its program gave it no name."""
        said = self.described.get(rank, self.description)
        return said if said != UNDESCRIBED else ""

    @property
    def title(self) -> str:
        """The group for people: the default group, or its name and what the user calls it."""
        if self.default:
            return "the default group"
        said = self.description if self.description != UNDESCRIBED else ""
        return f"group {self.name} ({said})" if said and said != self.name else f"group {self.name}"


@dataclass(frozen=True, slots=True)
class Clock:
    """By how much a rank's clock is ahead of most; `sure` is false where few calls tell, or they vary."""

    ahead_ns: int
    sure: bool = True


@dataclass(slots=True)
class Queues:
    """The queues of all ranks that left a record."""

    communicators: list[Communicator] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ranks: frozenset[int] = frozenset()  # with a record
    world_size: int | None = None
    timed: bool = False  # start events were recorded: without them nothing is ever "started"
    untimed: set[int] = field(default_factory=set)  # ranks that completed calls of which no start was recorded
    last_event: int = 0
    last_completion: int = 0
    timeout_ns: int = 0  # the shortest timeout of the calls that are not complete
    states: dict[int, dict[str, dict[str, str]]] = field(default_factory=dict)  # of communicators, by rank
    versions: dict[int, str] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)  # when the record of a rank was written, where that is known
    told: frozenset[int] = frozenset()  # the ranks whose record tells that itself, and not the date of its file
    assumed: frozenset[int] = frozenset()  # the ranks for which the first of those records tells it
    hosts: dict[int, tuple[Frame, ...]] = field(default_factory=dict)  # by rank the frames in which its program stands
    record: str = "dump"  # what a rank has left
    level: bool = False  # the ranks made equally many calls until now: of those no longer recorded, none is missing
    gaps: bool = False  # of one group older calls may be recorded than of another: torch's own ring has no gaps
    live: bool = False  # of ranks that are watched, and no files
    earlier: tuple[int, ...] = ()  # ranks whose record was of an earlier run, and is left out
    clocks: dict[int, Clock] = field(default_factory=dict)  # by rank, where they differ: the times are set right
    unread: set[int] = field(default_factory=set)  # ranks whose record is there, and cannot be read
    threads: dict[int, tuple[str, ...]] = field(default_factory=dict)  # by rank those that made its calls, if several

    def call(self, lane: Lane, place: int) -> Call:
        return self.calls[lane.calls[place]]

    def calls_in(self, lane: Lane) -> Iterator[Call]:
        """All calls of a lane, the oldest first."""
        return map(self.calls.__getitem__, lane.calls)

    def missing(self) -> tuple[int, ...]:
        """Ranks that left no record: the size of the job tells of them, or a group of which they are members."""
        named = (each.members for each in self.communicators if not each.guessed)
        return tuple(sorted(set(every_rank(self.world_size)).union(*named) - self.ranks))

    def untold(self) -> tuple[int, ...]:
        """Ranks that left no record of any run."""
        return tuple(rank for rank in self.missing() if rank not in self.earlier)

    def lanes(self) -> Iterator[tuple[Communicator, Lane]]:
        for communicator in self.communicators:
            for lane in (*communicator.lanes.values(), *communicator.peers.values()):
                yield communicator, lane

    def lanes_of(self, rank: int) -> Iterator[tuple[Communicator, Lane]]:
        """The lanes of one rank: of each group its collectives, and then its sends and receives."""
        for communicator in self.communicators:
            for lane in (communicator.lanes.get(rank), communicator.peers.get(rank)):
                if lane is not None:
                    yield communicator, lane
