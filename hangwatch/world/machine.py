"""The simulated job as it runs: hosts, ranks, threads and devices that carry out their acts until nothing can move.

Time does not pass by itself: what is quick happens at once, what is slow happens when `finish` says so. So a machine
at rest is a job of which every thread either waits or does something that takes long, as a snapshot would find it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from . import deeds
from .acts import (
    Collective,
    Destroy,
    DeviceWait,
    Die,
    Draw,
    End,
    Enter,
    Forward,
    Line,
    LoopEnd,
    Mark,
    Monitored,
    Optimizer,
    Peer,
    Raise,
    Slow,
    Start,
    Stop,
    ThreadPlan,
    Wait,
)
from .calls import BIG, Comm, Issued, Meeting, Route, Thread, kind_of
from .failures import Failures
from .ranks import BEGAN, Rank, Stream


class Machine(Failures):
    """A job of ranks with their threads and communicators. `run` lets it go as far as it can without slow acts."""

    def __init__(
        self,
        programs: Sequence[Sequence[Line]],
        comms: Sequence[Comm],
        *,
        hosts: Sequence[int] = (),
        threads: dict[int, Sequence[ThreadPlan]] | None = None,
        dice: random.Random | None = None,
        faults: int = 0,
        slow_links: bool = False,
    ) -> None:
        self.dice = dice or random.Random(0)
        self.clock = BEGAN
        self.comms = comms
        self.slow_links = slow_links
        self.fired: set[int] = set()
        self.faults = faults
        self.first_closed: int | None = None
        self.ready: list[Thread] = []
        self._routes: dict[tuple[str, int, int, int], Route] = {}
        self._of: dict[tuple[int, str], Comm] = {(rank, comm.name): comm for comm in comms for rank in comm.members}
        self.nccl = any(comm.backend != "gloo" for comm in comms)
        self.ranks = [self._rank(number, lines, hosts, threads or {}) for number, lines in enumerate(programs)]

    def _rank(
        self, number: int, lines: Sequence[Line], hosts: Sequence[int], plans: dict[int, Sequence[ThreadPlan]]
    ) -> Rank:
        rank = Rank(number, hosts[number] if hosts else 0)
        rank.threads.append(Thread(number, "MainThread", lines, daemon=False, main=True))
        for index, plan in enumerate(plans.get(number, ()), 1):
            rank.threads.append(Thread(number, plan.name, plan.lines, plan.daemon, number=index, running=plan.starts))
        self.ready += [thread for thread in rank.threads if thread.running]
        return rank

    def comm(self, rank: int, name: str) -> Comm:
        return self._of[rank, name]

    # -------------------------------------------------------------- time

    def run(self, turns: int = 1 << 30) -> Machine:
        """Lets all threads act, in random order, until each of them waits or does something slow, or for some turns."""
        dice = self.dice
        while self.ready and turns > 0:
            turns -= 1
            index = int(dice.random() * len(self.ready))
            thread = self.ready[index]
            self.ready[index] = self.ready[-1]
            self.ready.pop()
            self._advance(thread)
        return self

    def finish(self) -> bool:
        """Lets everything slow that can end come to its end, and calls with a timeout raise; false if there is none."""
        ending = [thread for rank in self.ranks if rank.state in "SD" for thread in rank.threads if _ends(thread)]
        for thread in ending:
            thread.slow = None
            thread.pc += 1
            self.ranks[thread.rank].state = "S"
            self.ready.append(thread)
        links = self._finish_links()
        if not ending and not links:
            return self._time_out()
        return True

    def _finish_links(self) -> bool:
        links: list[Route | Meeting] = [route for route in self._routes.values() if route.slow]
        links += [meeting for comm in self.comms for meeting in comm.meetings.values() if meeting.slow]
        for link in links:
            link.slow = False
            self._complete(link.completed())
        return bool(links)

    def _time_out(self) -> bool:
        for rank in self.ranks:
            for thread in rank.threads:
                if thread.timed is not None and rank.state == "S":
                    rank.failed_in, message = thread.timed, self._late_at(thread.timed, rank)
                    thread.timed = None
                    self.fail(thread, "RuntimeError", message, rank.failed_in.site)
                    return True
        return False

    def _late_at(self, barrier: Monitored, rank: Rank) -> str:
        """What the barrier says on its first member, which asks the others in their order, and on these."""
        members = self._of[rank.number, barrier.group].members
        if rank.number != members[0]:
            return (
                f"Rank {rank.number} successfully reached monitoredBarrier, but received errors while waiting for"
                f" send/recv from rank {members[0]}. Please check rank {members[0]} logs for faulty rank.\n Original"
                " exception: \n[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting"
                " 30000ms for recv operation to complete"
            )
        came = {other.number for other in self.ranks if any(thread.timed is not None for thread in other.threads)}
        late = next((member for member in members if member not in came), rank.number)
        return f"[Rank {rank.number}]: Ranks {late} failed to pass monitoredBarrier in 30000 ms"

    def _advance(self, thread: Thread) -> None:
        rank = self.ranks[thread.rank]
        while thread.running and rank.state == "S":
            act = thread.act
            if act is None:
                thread.running = False
                self.ended(rank, thread)
                return
            self.clock += 0.001
            if not _ACTS[type(act)](self, rank, thread, act):
                return
            thread.pc += 1
            if thread.main:
                rank.moves += 1
            if len(rank.threads) > 1 and self.dice.random() < 0.3:  # another thread's turn
                self.ready.append(thread)
                return

    # -------------------------------------------------------------- calls

    def _collective(self, rank: Rank, thread: Thread, act: Collective) -> bool:
        if thread.waits:  # it has been issued, and is complete now
            thread.waits = ()
            return True
        call = self._issue(rank, thread, act)
        if call is None:
            return False
        if act.handle:
            rank.handles.setdefault(act.handle, []).append(call)
            return True
        if self.on_device(call):
            rank.frontier[call.stream] = call
            return act.op != "barrier" or self._block(thread, (call,))
        return self._block(thread, (call,))

    def _issue(self, rank: Rank, thread: Thread, act: Collective) -> Issued | None:
        comm = self._of[rank.number, act.group]
        if self._peer_lost(thread, comm, act):
            return None
        if act.backend and act.backend != comm.backend:
            return self._beside(rank, thread, act, comm)
        seq = rank.issued[act.group] = rank.issued.get(act.group, 0) + 1
        call = Issued(rank.number, seq, act, thread, self.clock, rank.step, kind_of(act))
        rank.calls.append(call)
        rank.moved_at = self.clock
        meeting = call.meeting = comm.meeting(seq)
        meeting.slow = self.slow_links and act.size >= BIG
        odd = meeting.misfit(call)
        meeting.calls[rank.number] = call
        if self.on_device(call):
            self._enqueue(rank, call, (comm.name,))
        if odd is not None:
            self._size_mismatch(call, odd)
            if rank.living:
                self._broken(thread, self.ranks[odd.rank])
            return None
        self._complete(meeting.completed())
        return call

    def _beside(self, rank: Rank, thread: Thread, act: Collective, comm: Comm) -> Issued:
        """A call through the second backend of a group: torch's number of the group does not count it."""
        number = rank.beside[act.group] = rank.beside.get(act.group, 0) + 1
        call = Issued(rank.number, rank.issued.get(act.group, 0) + 1, act, thread, self.clock, rank.step, kind_of(act))
        rank.calls.append(call)
        rank.moved_at = self.clock
        meeting = call.meeting = comm.meeting(-number)
        meeting.slow = self.slow_links and act.size >= BIG
        meeting.calls[rank.number] = call
        self._complete(meeting.completed())
        return call

    def _enqueue(self, rank: Rank, call: Issued, stream: Stream) -> None:
        """On the device it runs behind its own stream's last call, and behind what the compute stream waits for."""
        before = [each for each in rank.frontier.values() if not each.complete]
        last = rank.queue.get(stream)
        if last is not None and not last.complete and last not in before:
            before.append(last)
        rank.queue[stream], call.stream = call, stream
        call.deps = len(before)
        for each in before:
            each.dependents.append(call)

    def _complete(self, calls: list[Issued]) -> None:
        """These calls are complete: threads that wait for them go on, and later work of their streams runs."""
        todo = list(calls)
        while todo:
            call = todo.pop()
            if call.complete:
                continue
            call.complete = True
            rank = self.ranks[call.rank]
            rank.moves += 1
            rank.moved_at = self.clock
            for thread in call.waiters:
                thread.left -= 1
                if thread.left == 0:
                    thread.timed = None
                    self.ready.append(thread)
            for other in call.dependents:
                other.deps -= 1
                if other.deps == 0 and other.meeting is not None:
                    todo += other.meeting.completed()

    def _block(self, thread: Thread, calls: Sequence[Issued]) -> bool:
        """Waits for these calls; true where they are all complete."""
        waits = tuple(call for call in calls if not call.complete)
        if not waits:
            return True
        lost = next((dead for call in waits if (dead := self._lost_member(call)) is not None), None)
        if lost is not None:
            self._broken(thread, lost)
            return False
        thread.waits, thread.left = waits, len(waits)
        for call in waits:
            call.waiters.append(thread)
        return False

    def _wait(self, rank: Rank, thread: Thread, act: Wait) -> bool:
        if thread.waits:
            thread.waits = ()
            return True
        calls = rank.handles.pop(act.handle, [])
        device = [call for call in calls if self.on_device(call)]
        for call in device:  # the compute stream waits, the host does not
            rank.frontier[call.stream] = call
        host = [call for call in calls if not self.on_device(call)] if device else calls
        return self._block(thread, host)

    def _device_wait(self, rank: Rank, thread: Thread, act: DeviceWait) -> bool:
        if thread.waits:
            thread.waits = ()
            return True
        if not self.nccl:
            return True
        streams = rank.queue if act.everything else rank.frontier
        return self._block(thread, tuple(streams.values()))

    def _peer(self, rank: Rank, thread: Thread, act: Peer) -> bool:
        if thread.waits:
            thread.waits = ()
            return True
        comm = self._of[rank.number, act.group]
        if self._peer_lost(thread, comm, act):
            return False
        sends = act.op == "send"
        counts = rank.sent if sends else rank.received
        counts[act.group] = counts.get(act.group, 0) + 1
        number = rank.sent.get(act.group, 0) + rank.received.get(act.group, 0)
        call = Issued(rank.number, number, act, thread, self.clock, rank.step, act.op)
        rank.calls.append(call)
        rank.moved_at = self.clock
        route = call.meeting = self._route(rank.number, act)
        (route.sends if sends else route.receives).append(call)
        if self.on_device(call):
            pair = tuple(sorted((rank.number, act.peer)))
            self._enqueue(rank, call, ("peer", *pair, act.op, act.batch))
        self._complete(route.completed())
        if act.handle:
            rank.handles.setdefault(act.handle, []).append(call)
            return True
        if self.on_device(call):
            rank.frontier[call.stream] = call
            return True
        return self._block(thread, (call,))

    def _route(self, rank: int, act: Peer) -> Route:
        ends = (rank, act.peer) if act.op == "send" else (act.peer, rank)
        comm = self._of[rank, act.group]
        eager = comm.eager and comm.backend != "gloo"  # gloo's sender waits for its receiver
        return self._routes.setdefault((act.group, *ends, act.tag), Route(eager, self.slow_links))

    def _monitored(self, rank: Rank, thread: Thread, act: Monitored) -> bool:
        """monitored_barrier: not counted among the group's collectives, and it raises after its timeout."""
        if thread.waits:
            thread.waits, thread.timed = (), None
            return True
        comm = self._of[rank.number, act.group]
        if self._peer_lost(thread, comm, act):
            return False
        inner = Collective("monitored_barrier", act.site, act.group)
        call = Issued(rank.number, rank.issued.get(act.group, 0) + 1, inner, thread, self.clock, rank.step, "barrier")
        number = rank.received.get("monitored", 0)
        rank.received["monitored"] = number + 1
        meeting = call.meeting = comm.meeting(-1_000_000 - number)
        meeting.calls[rank.number] = call
        rank.calls.append(call)
        thread.timed = act
        self._complete(meeting.completed())
        return self._block(thread, (call,))


def _ends(thread: Thread) -> bool:
    return thread.running and thread.slow is not None and not thread.slow.forever


_ACTS: dict[type, Callable[..., bool]] = {
    Collective: Machine._collective,
    Peer: Machine._peer,
    Wait: Machine._wait,
    Monitored: Machine._monitored,
    DeviceWait: Machine._device_wait,
    Draw: deeds.draw,
    LoopEnd: deeds.loop_end,
    Forward: deeds.forward,
    Enter: deeds.enter,
    Optimizer: deeds.optimizer,
    Slow: deeds.slow,
    Mark: deeds.mark,
    Start: deeds.start,
    Raise: deeds.raises,
    Die: deeds.die,
    Stop: deeds.stop,
    Destroy: deeds.destroy,
    End: deeds.end,
}
