"""What goes wrong in a simulated job: processes that end, and those that lose their connection to them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hangwatch.model import ExceptionFacts, Phase

from .acts import Act, Collective, Monitored, Peer
from .calls import Comm, Issued, Thread
from .ranks import Rank

LOST_PEER = "[../third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection closed by peer [10.0.0.1]:{port}"


class Failures:
    """The part of the machine in which processes fail. What it needs of the rest stands first."""

    dice: random.Random
    clock: float
    ranks: list[Rank]
    first_closed: int | None
    fired: set[int]
    ready: list[Thread]
    _of: dict[tuple[int, str], Comm]

    def on_device(self, call: Issued) -> bool:
        """The call lies in a queue of the device, and its host does not wait."""
        act = call.act
        backend = act.backend if isinstance(act, Collective) and act.backend else ""
        return (backend or self._of[call.rank, act.group].backend) != "gloo"

    def _size_mismatch(self, call: Issued, odd: Issued) -> None:
        """gloo: one of the two gets data of a size that it does not expect, and aborts its process."""
        victim = self.ranks[self.dice.choice((call.rank, odd.rank))]
        victim.output = (
            "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at"
            " gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. Received data size doesn't match"
            " expected size.\n"
        )
        self.kill(victim, -6)

    def kill(self, rank: Rank, code: int) -> None:
        """The process ends. On gloo those that wait for it, or call it later, lose their connection."""
        if not rank.living:
            return
        rank.state, rank.code, rank.ended_at = "X", code, self.clock
        rank.moves += 1
        if self.first_closed is None:
            self.first_closed = rank.number
        rank.stood = tuple(thread for thread in rank.threads if thread.running)
        for thread in rank.stood:
            thread.running = False
        for other in self.ranks:
            if other.living and other is not rank:
                self.lose(other, rank)

    def lose(self, other: Rank, dead: Rank) -> None:
        for thread in other.threads:
            waits = [call for call in thread.waits if not self.on_device(call)]
            if thread.running and any(self._involves(call, dead.number) for call in waits):
                self._broken(thread, dead)

    def _involves(self, call: Issued, rank: int) -> bool:
        if call.complete:
            return False
        if isinstance(call.act, Peer):
            return call.act.peer == rank
        return rank in self._of[call.rank, call.act.group].members

    def _peer_lost(self, thread: Thread, comm: Comm, act: Collective | Peer | Monitored) -> bool:
        backend = (act.backend if isinstance(act, Collective) else "") or comm.backend
        if backend != "gloo":
            return False
        dead = self._dead_of((act.peer,) if isinstance(act, Peer) else comm.members)
        if dead is None:
            return False
        self._broken(thread, dead)
        return True

    def _lost_member(self, call: Issued) -> Rank | None:
        if self.first_closed is None or self.on_device(call):
            return None
        return self._dead_of(
            (call.act.peer,) if isinstance(call.act, Peer) else self._of[call.rank, call.act.group].members
        )

    def _dead_of(self, members: Sequence[int]) -> Rank | None:
        """One of `members` whose connections are closed: its process has ended, or destroyed its groups."""
        if self.first_closed is None:
            return None
        return next((self.ranks[rank] for rank in members if self.ranks[rank].closed), None)

    def _broken(self, thread: Thread, dead: Rank) -> None:
        act = thread.act
        site = getattr(act, "site", None)
        message = LOST_PEER.format(
            file="../third_party/gloo/gloo/transport/tcp/pair.cc", host=1, port=20000 + dead.number
        )
        self.fail(thread, "RuntimeError", message, site, inside=act)

    def fail(
        self, thread: Thread, kind: str, message: str, site: object, *, inside: Act | None = None, lingers: bool = False
    ) -> None:
        """An uncaught error ends a thread, or comes up `inside` a call; that of the main thread ends the process."""
        rank = self.ranks[thread.rank]
        frames = getattr(site, "frames", ())
        if rank.exception is None or (thread.main and not rank.exception.fatal):
            rank.failed_in = inside
            rank.exception = ExceptionFacts(kind, message, frames, thread.name, self.clock, fatal=thread.main)
        thread.running, thread.waits = False, ()
        if not thread.main:
            return
        rank.phase = Phase.FAILED
        rank.moves += 1
        if not lingers and not self._held(rank):
            self.kill(rank, 1)

    def _held(self, rank: Rank) -> bool:
        return any(thread.running and not thread.daemon and not thread.main for thread in rank.threads)

    def ended(self, rank: Rank, thread: Thread) -> None:
        """A thread's program is over; the process ends with its last thread that is no daemon."""
        main = rank.threads[0]
        if not main.running and not self._held(rank) and rank.living and rank.phase in (Phase.MAIN_DONE, Phase.FAILED):
            self.kill(rank, 1 if rank.phase is Phase.FAILED else 0)
