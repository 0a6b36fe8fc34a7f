"""One process group of this rank: its members, and how many collectives the rank has issued in it.

torch counts every collective of a group in a sequence number, those that DDP issues from C++ too. On gloo that number
also counts point-to-point calls, which differ from rank to rank: `uncounted` takes them out again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from hangwatch.wire import members

MOST_REFUSALS = 4096  # a group can be in the making for minutes, and is asked at each tick


def _of_its_backend(pg: Any) -> Callable[[Any], int] | None:
    """The sequence number of the only backend of a group, which torch finds for no call that names no device.

    So is that of a group of "cpu:gloo" once torch.distributed.checkpoint has been imported. None for any other group.
    """
    try:
        devices = list(pg._device_types)
        if pg.name() != "undefined" or len({pg._get_backend(device).name() for device in devices}) != 1:
            return None
    except Exception:  # no backend yet, or a torch without these
        return None
    device = devices[0]
    return lambda group: int(group._get_backend(device)._get_sequence_number_for_group())


class Group:
    """One group slot of the board. `records` are the group's numbers in torch's flight recorders, by backend."""

    def __init__(self, index: int, pg: Any, ranks: tuple[int, ...], backend: str) -> None:
        self.index = index
        self.ref = weakref.ref(pg)  # a strong one would keep the backend alive past destroy_process_group
        # Unbound, since it is asked at every step.
        self.sequence: Callable[[Any], int] = type(pg)._get_sequence_number_for_group
        self.name: str = str(pg.group_name)
        self.ranks = ranks
        self.backend = backend
        self.description = str(getattr(pg, "group_desc", ""))
        self.timeout_s = timeout_of(pg)
        self.records: dict[str, int] = {}
        self.since = 0
        self.alive = True
        self.countable = True
        self.refused = False  # torch could not say it when it was asked last
        self.refusals = 0
        self.issued = 0
        self.uncounted = 0
        self.differed = ((0, 0), 0)  # our count and the recorder's when they last differed, and at how many ticks
        self.sent = self.received = 0
        self.latest = -1  # the number of the call that was completed last, as the recorder's status has it
        self.messages_done = 0  # how often that was another one while it may be a send or receive: at least so many
        self.peers: dict[int, int] = {}  # global rank -> word of its peer slot on the board, 0 where none was free
        self.barriers: list[int] = []  # collectives issued before each monitored_barrier
        self.point_to_point: deque[int] = deque(maxlen=4096)  # the sequence numbers that they took

    def count(self) -> int:
        """Collectives issued so far. Where torch cannot say, those that were issued from Python.

        A group that is being made has no backend yet to ask: only after calls is one without an answer left alone.
        """
        pg = self.ref()
        if pg is not None and self.countable:
            try:
                self.issued, self.refused = self.sequence(pg) - self.uncounted, False
            except Exception:  # a backend without sequence numbers, one that has been aborted, or none yet
                self.refuse()
                self.sequence = _of_its_backend(pg) or self.sequence
        return self.issued

    def refuse(self) -> None:
        """Torch could not say how many: it is not asked for ever, nor again once calls have been counted."""
        self.refused, self.refusals = True, self.refusals + 1
        self.countable = not self.issued and self.refusals < MOST_REFUSALS

    def notice(self, latest: int, *, mixed: bool) -> None:
        """Take down which call was completed last; `mixed` says that it may be a send or receive (see `is_mixed`)."""
        self.messages_done += mixed and latest != self.latest
        self.latest = latest

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
        ranks = members.text(self.ranks)
        return [self.index, self.since, self.alive, self.name, ranks, self.description, self.backend, self.timeout_s]


def timeout_of(pg: Any) -> float | None:
    """Seconds after which a backend of the group ends a call: the least of its backends'. None where torch hides it."""
    try:
        found = [pg._get_backend(device).options._timeout.total_seconds() for device in pg._device_types]
    except Exception:  # another torch, a backend without options, or one that has been aborted
        return None
    return min(found, default=None)
