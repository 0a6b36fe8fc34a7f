"""Which ranks stand in a call that waits for other ranks, and what would release each of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from hangwatch.model import Collective, Frame, GroupHead
from hangwatch.proof.conditions import board_is_fresh, raises_by_itself, wait_is_certain
from hangwatch.proof.graph import Need
from hangwatch.proof.messages import counterpart, made_and_served, none_is_left, serves, unserved
from hangwatch.proof.needs import Needs
from hangwatch.ranks.device_waits import Path, may_wait_on_device, on_device, python_frames, queued, shows_device_wait
from hangwatch.ranks.ledger import Group, Ledger, is_numbered
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import IN_DDPS_FORWARD, POINT_TO_POINT, UNRECORDED, Activity, Doing

_MOST_SERVERS = 8  # ranks that take messages from any rank at once
ASLEEP = ("gloo", "cpu:gloo")  # backends whose calls are waited for asleep
_LIKELY = "all_reduce"  # what C++ code issues is not recorded: an operation that needs all members, most of the time


@dataclass(frozen=True)
class Blocked:
    """A rank that stands in a collective or point-to-point call.

    `group` and `seq` are what it waits for, where known. `certain` says that it surely cannot go on without `need`.
    """

    rank: int
    activity: Activity
    group: Group | None = None
    seq: int | None = None
    need: Need | None = None
    call: Collective | None = None
    certain: bool = False

    @property
    def op(self) -> str:
        if self.call is not None and self.activity.op in ("", "gradients", *IN_DDPS_FORWARD):
            return self.call.op
        return self.activity.op or (self.call.op if self.call is not None else "")

    @property
    def to_a_peer(self) -> bool:
        """A send or a receive, also one that is waited for later."""
        return self.activity.op in POINT_TO_POINT or (self.call is not None and self.call.op in POINT_TO_POINT)

    @property
    def message(self) -> Collective | None:
        """The send or receive that it stands in, where that is on record."""
        return self.call if self.to_a_peer else None

    @property
    def where(self) -> Frame | None:
        return self.activity.where

    @property
    def lacking(self) -> Collection[int]:
        """The ranks that it needs; where it may go on by itself, as a root does, those that have not come."""
        if self.need is not None:
            return self.need.absent
        return self.group.behind(self.seq) if self.group is not None and self.seq is not None else ()


class Waits:
    """The waits of all ranks at one moment."""

    def __init__(self, ranks: Mapping[int, RankView], ledger: Ledger) -> None:
        self._ranks, self._ledger = ranks, ledger
        self.needs = Needs(ledger)

    def blocked(self) -> dict[int, Blocked]:
        """Ranks that stand in a collective or point-to-point call, certain or not."""
        found = (
            self._of(view) for view in self._ranks.values() if not (view.dead or view.stopped or view.left_by_error)
        )
        return {entry.rank: entry for entry in found if entry is not None}

    def _of(self, view: RankView) -> Blocked | None:
        now = view.now
        if not now.in_collective or self._finds_no_room(view):
            return self._on_device(view)
        if now.doing in UNRECORDED and not (now.doing is Doing.REMOTE_CALL and self._ledger.outstanding(view.rank)):
            return Blocked(view.rank, now)  # the answer may be on its way
        if self._is_through(view) or self.runs_backward(view):
            return None
        if now.op in POINT_TO_POINT or self._open_peer(view) is not None:
            return self._on_peer(view)
        if raises_by_itself(now):
            return self._at_a_monitored_barrier(view)
        candidates = self._candidates(view)
        if not candidates:
            return Blocked(view.rank, now)
        group, seq = candidates[0]
        call = self._ledger.call(view.rank, group.name, seq)
        op = call.op if call is not None and now.op in ("", "gradients") else now.op
        need = self.needs.of(view.rank, candidates, op, call.peer if call is not None else None)
        certain = need is not None and self._is_certain(view)
        return Blocked(view.rank, now, group, seq, need, call, certain)

    def _is_through(self, view: RankView) -> bool:
        """All that it has issued is complete and no call is open: it is about to leave the call that its stack shows.

        In a group without any call it may stand in the set-up of the communicator instead. On a host calls that no
        counter knows may wait (a monitored barrier): there its counters have to move as well.
        """
        groups = list(self._ledger.groups_of(view.rank))
        return (
            bool(groups)
            and (view.evidence.moved or all(on_device(group, view.rank) for group in groups))
            and all(_is_complete(group.heads[view.rank]) for group in groups)
            and not self._ledger.open_calls(view.rank)
        )

    def _candidates(self, view: RankView) -> list[tuple[Group, int]]:
        """(group, number) of the collectives that this rank may be waiting for."""
        calls = {
            (call.group, call.seq)
            for call in self._ledger.open_calls(view.rank)
            if _same_thread(call, view.now) and call.seq > 0 and is_numbered(call)
        }
        if len(calls) == 1 and view.now.doing in (Doing.COLLECTIVE, Doing.WORK_WAIT):
            name, seq = calls.pop()
            group = self._ledger.group(view.rank, name)
            if group is not None:
                return [(group, seq)]
        outstanding = self._ledger.outstanding(view.rank)
        if view.now.exact and len(outstanding) == 1:
            return [(outstanding[0][0], outstanding[0][2])]
        return [(group, lowest) for group, lowest, _ in outstanding]

    def _at_a_monitored_barrier(self, view: RankView) -> Blocked:
        """It has no number: rank 0 asks every member for a message, and the others wait for its answer."""
        made = reversed(view.evidence.board_calls)  # the last one is the one that it is in
        call = next((call for call in made if call.op == "monitored_barrier"), None)
        group = self._ledger.group(view.rank, call.group) if call is not None else None
        if call is None or group is None:
            return Blocked(view.rank, view.now)
        need = self.needs.at_monitored_barrier(group, self._at_monitored_barriers)
        return Blocked(view.rank, view.now, group, None, need, call)

    @cached_property
    def _at_monitored_barriers(self) -> frozenset[int]:
        return frozenset(view.rank for view in self._ranks.values() if raises_by_itself(view.now))

    def runs_backward(self, view: RankView) -> bool:
        """It stands in backward, and in none of the calls there: it computes, or waits for something else.

        With gloo a host waits for its ranks asleep. With other backends it may spin, as it does where a device's queue
        is full: there only that all which it has issued is complete says so.
        """
        groups = [group.heads[view.rank] for group in self._ledger.groups_of(view.rank)]
        if view.now.doing is not Doing.BACKWARD or not (groups and view.steady and board_is_fresh(view)):
            return False
        if all(map(_is_complete, groups)):
            return not self._ledger.open_calls(view.rank)
        return view.computes_or_reads and all(head.backend in ASLEEP for head in groups)

    # -------------------------------------------------------------- on the device

    def _on_device(self, view: RankView) -> Blocked | None:
        """It waits for the first incomplete collective of one of its communicators, and which one is not known."""
        shown = self.shows_device_wait(view)
        if not shown and not board_is_fresh(view):
            return None  # what was outstanding then may be done
        candidates = queued(self._ledger, view.rank)
        once = shown and not view.sampled_twice and not view.evidence.moved  # its counters say that it stands
        if not (once or (view.steady and (shown or may_wait_on_device(view)))):
            return None
        if shown and (held := self._for_a_message(view, candidates)) is not None:
            return held
        if not candidates:
            return None
        group, seq = candidates[0]
        call = self._ledger.call(view.rank, group.name, seq)
        op, root = (call.op, call.peer) if call is not None else (_LIKELY, None)
        need = self.needs.of(view.rank, candidates, op, root)
        others = view.threads_that_may_communicate()
        seen = call is not None and shown and view.steady
        certain = need is not None and seen and not others and board_is_fresh(view)
        return Blocked(view.rank, view.now, group, seq, need, call, certain=certain)

    def _for_a_message(self, view: RankView, candidates: list[tuple[Group, int]]) -> Blocked | None:
        """A message of it has no counterpart, and no collective lacks a rank: that message holds up its device."""
        absent = any(group.behind(number) for group, number in candidates)
        message = unserved(self._ledger, view.rank) if not absent else None
        if message is None or message.peer is None:
            return None
        group = self._ledger.group(view.rank, message.group)
        need = Need((message.peer,), group=message.group, op=message.op, seq=message.seq)
        return Blocked(view.rank, view.now, group, message.seq, need, message)

    def _finds_no_room(self, view: RankView) -> bool:
        """Its call is not even queued: the driver takes no launch before what is in front of it is done."""
        return view.now.doing is Doing.COLLECTIVE and self.launches(view) and bool(queued(self._ledger, view.rank))

    def shows_device_wait(self, view: RankView) -> bool:
        """A native frame shows it, of this rank or of another one that stands in the same Python frames."""
        return shows_device_wait(view.now) or python_frames(view) in self._device_stacks

    def launches(self, view: RankView) -> bool:
        """It stands in a call of the driver that gives its device something to do.

        A native frame shows it: its own, or where none of its own was taken that of a rank in the same Python frames.
        """
        looked_at = any(frame.native for frame in view.evidence.main_stack)
        return view.now.launches or (not looked_at and python_frames(view) in self._launching_stacks)

    def spins(self, view: RankView) -> bool:
        """A native frame, of this rank or of one in the same Python frames, shows that it spins in a wait."""
        return view.spins or python_frames(view) in self._spinning_stacks

    @cached_property
    def _spinning_stacks(self) -> frozenset[Path]:
        return frozenset(python_frames(view) for view in self._ranks.values() if view.spins)

    @cached_property
    def _launching_stacks(self) -> frozenset[Path]:
        return frozenset(python_frames(view) for view in self._ranks.values() if view.now.launches)

    @cached_property
    def _device_stacks(self) -> frozenset[Path]:
        """Python frames below which a native frame of some rank shows a wait on the device."""
        return frozenset(python_frames(view) for view in self._ranks.values() if shows_device_wait(view.now))

    # -------------------------------------------------------------- on one peer

    def _on_peer(self, view: RankView) -> Blocked:
        call = self._open_peer(view)
        if call is not None and call.peer is None and "recv" in call.op:
            return self._on_any_peer(view, call)
        if call is None or call.peer is None or call.peer == view.rank:
            return Blocked(view.rank, view.now, call=call)
        need = Need((call.peer,), group=call.group, op=call.op, seq=call.seq)
        on_its_way = "send" in call.op and call.peer in self._ranks and self._ranks[call.peer].stopped
        certain = self._is_certain(view) and not on_its_way and not self._matched(view.rank, call)
        return Blocked(view.rank, view.now, self._ledger.group(view.rank, call.group), call.seq, need, call, certain)

    def _on_any_peer(self, view: RankView, call: Collective) -> Blocked:
        """Every other member could send the message; first come those that wait for a message with this rank.

        Few ranks serve others so. Where many do, none is held to wait for all the others: that would be their square.
        """
        group = self._ledger.group(view.rank, call.group)
        if group is None or self._servers > _MOST_SERVERS:
            return Blocked(view.rank, view.now, call=call)
        waiting = self._asking.get(view.rank, set())
        others = sorted(
            (rank for rank in group.members if rank != view.rank), key=lambda rank: (rank not in waiting, rank)
        )
        need = Need(tuple(others), False, group=call.group, members=group.members, seq=call.seq, op=call.op)
        certain = self._is_certain(view) and none_is_left(self._ledger, view.rank, group)
        return Blocked(view.rank, view.now, group, call.seq, need, call, certain)

    @cached_property
    def _asking(self) -> dict[int | None, set[int]]:
        """Who is in a message with each rank, and under None who takes one from any."""
        found: dict[int | None, set[int]] = {}
        for rank in self._ranks:
            for call in self._ledger.open_calls(rank):
                if call.op.rpartition(":")[2] in POINT_TO_POINT:
                    found.setdefault(call.peer, set()).add(rank)
        return found

    @property
    def _servers(self) -> int:
        return len(self._asking.get(None, ()))

    def _is_certain(self, view: RankView) -> bool:
        return wait_is_certain(view, self._ledger, spins=self.spins(view))

    def _open_peer(self, view: RankView) -> Collective | None:
        calls = [call for call in self._ledger.open_calls(view.rank) if _same_thread(call, view.now)]
        found = [call for call in calls if call.op.rpartition(":")[2] in POINT_TO_POINT]
        return found[-1] if found and len(found) == len(calls) else None

    def _matched(self, rank: int, call: Collective) -> bool:
        """The peer is inside a call that serves this one, or has issued one before whose data may be on its way."""
        peer = self._ranks.get(call.peer) if call.peer is not None else None
        if peer is None:
            return True
        other = counterpart(call.op)
        inside = any(serves(served, other, rank, call) for served in self._ledger.open_calls(peer.rank))
        counts = made_and_served(self._ledger, rank, call)
        return inside or counts is None or counts[1] >= counts[0]  # else those that are not on record could be the ones


def _is_complete(head: GroupHead) -> bool:
    return 0 < head.issued <= head.completed


def _same_thread(call: Collective, now: Activity) -> bool:
    return not call.thread_name or not now.thread or call.thread_name == now.thread
