"""The process groups of this rank: enrolled as torch makes them, retired as it forgets them."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from hangwatch_agent.board import layout as b
from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.rank.flight_recorder import Recorder, recorded
from hangwatch_agent.rank.group import Group, timeout_of

RECORDERS = ("gloo", "nccl")  # backends that have a flight recorder, each with its own numbers of groups
PEERS = range(b.PEERS_AT, b.PEERS_AT + b.PEER_SLOTS * b.PEER_WORDS, b.PEER_WORDS)
RETIMED_EVERY_S = 10.0  # between looks at the groups' timeouts, which some trainers set anew after their first step


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
        self._retimed_at = time.monotonic()

    def of(self, pg: Any) -> Group | None:
        """The group of a torch ProcessGroup; enrolled now if it has escaped us so far."""
        group = self._by_id.get(id(pg))
        if group is None or group.ref() is not pg:
            self.sync()
            group = self._by_id.get(id(pg))
        return group

    def sync(self) -> bool:
        """Enrol groups that torch has and we have not, retire those that it has no more. Whether any changed."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            world = _world()
            if world is None:
                return False
            present = {id(pg): pg for pg in list(world.pg_map) if hasattr(pg, "group_name")}
            changed = self._retire(present) or self._retimed()
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
            group = self._by_id.pop(identity)
            group.alive = False
            for at in filter(None, group.peers.values()):
                self._board.words[at + b.P_GROUP] = 0
        return bool(gone)

    def _retimed(self) -> bool:
        """Whether a timeout was found to be set anew. A look takes about 3 us for each group."""
        now = time.monotonic()
        if now - self._retimed_at < RETIMED_EVERY_S:
            return False
        self._retimed_at = now
        changed = False
        for group in self.slots:
            pg = group.ref() if group.alive else None
            found = timeout_of(pg) if pg is not None else group.timeout_s
            changed = changed or found != group.timeout_s
            group.timeout_s = found
        return changed

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
        path = self._board.path
        last = recorded(group, Recorder(path.parent if path is not None else None))
        if last is not None and 0 < last < issued:
            group.uncounted = issued - last

    def _fill(self, group: Group) -> None:
        at = b.GROUPS_AT + group.index * b.SLOT_WORDS
        words = self._board.words
        words[at + b.G_ISSUED], words[at + b.G_COMPLETED] = group.count(), -1
        words[at + b.G_SENT] = words[at + b.G_RECEIVED] = 0

    def count_message(self, group: Group, peer: int, sent: bool) -> None:
        """A message to or from global rank `peer` is about to be issued."""
        words = self._board.words
        at = group.peers.get(peer)
        if at is None:
            at = group.peers[peer] = next((slot for slot in PEERS if not words[slot + b.P_GROUP]), 0)
            if at:
                words[at + b.P_PEER], words[at + b.P_SENT], words[at + b.P_RECEIVED] = peer, 0, 0
                words[at + b.P_GROUP] = group.index + 1
        if at:
            words[at + (b.P_SENT if sent else b.P_RECEIVED)] += 1

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
