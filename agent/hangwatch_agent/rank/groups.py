"""The process groups of this rank: their members, and how many collectives it has issued in each.

torch counts every collective of a group in a sequence number, those that DDP issues from C++ too. On gloo that number
also counts point-to-point calls, which differ from rank to rank: `uncounted` takes them out again.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from typing import Any

from hangwatch.wire import members
from hangwatch_agent.board import layout as b
from hangwatch_agent.board.writer import BoardWriter

RECORDERS = ("gloo", "nccl")  # backends that have a flight recorder, each with its own numbers of groups


class Group:
    """One group slot of the board. `records` are the group's numbers in torch's flight recorders, by backend."""

    def __init__(self, index: int, pg: Any, ranks: tuple[int, ...], backend: str) -> None:
        self.index = index
        self.ref = weakref.ref(pg)  # a strong one would keep the backend alive past destroy_process_group
        self.sequence = type(pg)._get_sequence_number_for_group  # unbound: asked at every step
        self.name: str = str(pg.group_name)
        self.ranks = ranks
        self.backend = backend
        self.description = str(getattr(pg, "group_desc", ""))
        self.records: dict[str, int] = {}
        self.since = 0
        self.alive = True
        self.countable = True
        self.issued = 0
        self.uncounted = 0
        self.differed = ((0, 0), 0)  # our count and the recorder's when they last differed, and at how many ticks
        self.sent = self.received = 0
        self.barriers: list[int] = []  # collectives issued before each monitored_barrier
        self.point_to_point: deque[int] = deque(maxlen=4096)  # the sequence numbers that they took

    def count(self) -> int:
        """Collectives issued so far. Where torch cannot say, those that were issued from Python."""
        pg = self.ref()
        if pg is not None and self.countable:
            try:
                self.issued = self.sequence(pg) - self.uncounted
            except Exception:  # a backend without sequence numbers, or one that has been aborted
                self.countable = False
        return self.issued

    def collectives_until(self, sequence: int) -> int:
        """How many of the first `sequence` numbers were collectives: the recorder's status counts both kinds."""
        later = 0
        for number in reversed(self.point_to_point):
            if number <= sequence:
                break
            later += 1
        return sequence - (self.uncounted - later)

    def collective_number(self, recorded: int) -> int:
        """The number of a collective in our count, from 1, by its number in the flight recorder.

        The recorder counts a monitored_barrier as two collectives, which the sequence number does not.
        """
        shift = 0
        for before in self.barriers:
            if recorded - shift <= before:
                break
            shift += 2
        return recorded - shift

    def row(self) -> list[Any]:
        """This group in the groups blob, as `reading.slots` expects it."""
        return [self.index, self.since, self.alive, self.name, members.text(self.ranks), self.description, self.backend]


class Groups:
    """All groups that this rank is a member of, in slots of the board."""

    def __init__(self, board: BoardWriter) -> None:
        self._board = board
        self.reset()

    def reset(self) -> None:
        """Forget every group: this process has a new board."""
        self._lock = threading.Lock()  # never waited for: a thread that does not get it leaves the work to the owner
        self.slots: list[Group] = []
        self._by_id: dict[int, Group] = {}
        self._made = dict.fromkeys(RECORDERS, 0)

    def of(self, pg: Any) -> Group | None:
        """The group of a torch ProcessGroup; enrolled now if it has escaped us so far."""
        group = self._by_id.get(id(pg))
        if group is None or group.ref() is not pg:
            self.sync()
            group = self._by_id.get(id(pg))
        return group

    def write_issued(self, words: memoryview, at: int) -> int:
        """Store the issued counts of all groups from word `at` on; returns how many there are."""
        for group in self.slots:
            pg = group.ref()
            if pg is not None and group.countable:
                try:
                    group.issued = group.sequence(pg) - group.uncounted
                except Exception:  # as in `count`, whose call would cost as much again
                    group.countable = False
            words[at] = group.issued
            at += 1
        return len(self.slots)

    def sync(self) -> bool:
        """Enrol groups that torch has and we have not, retire those that it has no more. Whether any changed."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            world = _world()
            if world is None:
                return False
            present = {id(pg): pg for pg in list(world.pg_map) if hasattr(pg, "group_name")}
            changed = self._retire(present)
            for identity, pg in present.items():
                known = self._by_id.get(identity)
                if known is None or known.ref() is not pg:
                    changed = self._enrol(world, pg) or changed
            if changed:
                self._board.write("groups", [group.row() for group in self.slots])
            return changed
        finally:
            self._lock.release()

    def _retire(self, present: dict[int, Any]) -> bool:
        gone = [
            identity
            for identity, group in self._by_id.items()
            if group.ref() is None or present.get(identity) is not group.ref()
        ]
        for identity in gone:
            self._by_id.pop(identity).alive = False
        return bool(gone)

    def _enrol(self, world: Any, pg: Any) -> bool:
        backend = str(world.pg_map[pg][0])
        records = self._numbers(str(world.pg_backend_config.get(pg, backend)))
        index = len(self.slots)
        if index >= b.GROUP_SLOTS:
            reusable = next((group.index for group in self.slots if not group.alive), None)
            if reusable is None:
                self._board.problem(f"more than {b.GROUP_SLOTS} process groups: the further ones are not watched")
                return False
            index = reusable
        ranks = tuple(sorted(world.pg_group_ranks[pg], key=world.pg_group_ranks[pg].__getitem__))
        group = Group(index, pg, ranks, backend)
        group.records, group.since = records, self._board.words[b.W_STEPS_WRITTEN]
        self._calibrate(group)
        self._fill(group)
        self._by_id[id(pg)] = group
        self.slots[index : index + 1] = [group]
        return True

    def _calibrate(self, group: Group) -> None:
        """A group that was in use before us: point-to-point calls that we have not seen are in its sequence number."""
        issued = group.count()
        if issued <= 0 or not group.records:
            return
        from hangwatch_agent.rank.flight_recorder import Recorder, recorded

        path = self._board.path
        last = recorded(group, Recorder(path.parent if path is not None else None))
        if last is not None and 0 < last < issued:
            group.uncounted = issued - last

    def _fill(self, group: Group) -> None:
        at = b.GROUPS_AT + group.index * b.SLOT_WORDS
        words = self._board.words
        words[at + b.G_ISSUED], words[at + b.G_COMPLETED] = group.count(), -1
        words[at + b.G_SENT] = words[at + b.G_RECEIVED] = 0

    def _numbers(self, backends: str) -> dict[str, int]:
        """The group's numbers in the flight recorders: each backend counts its groups from 0 as they are made."""
        found = {}
        for name in RECORDERS:
            if name in backends:
                found[name] = self._made[name]
                self._made[name] += 1
        return found


def _world() -> Any:
    module = sys.modules.get("torch.distributed.distributed_c10d")
    return getattr(module, "_world", None)
