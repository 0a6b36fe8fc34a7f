"""The wait-for graph, and the proof that no rank in it can ever move again.

The model is the AND wait-for graph. A rank that stands in a collective needs *every* member of the group that has not
issued it; it can go on only when all of those come. A rank is **released** when it can move by itself, or when all
that it waits for are released. The ranks that remain when no other can be released are deadlocked.

What must be true for a proof, and how it is ensured:

1. *The wait is real.* A rank counts as waiting only where its training thread stands in a blocking call, both samples
   of its stack agree, and none of its counters moved between them. Backward and `Work.wait` have no frame of their own
   for the wait: there a native frame shows it, or that the thread sleeps without a timeout for what only its own
   process can give. Little use of the processor alone shows nothing: a rank may read. A call that raises after a short
   timeout of its own (monitored_barrier) is no wait. Whatever else a rank may be doing, it counts as able to move.
2. *The wait needs the absent.* all_reduce, all_gather, reduce_scatter, all_to_all and barrier cannot complete on
   any rank before every member has issued them. Of rooted operations only two waits are used: a receiver's wait for an
   absent root (broadcast, scatter), and the root's wait for absent members (reduce, gather); all others may complete by
   themselves. Where a rank may be waiting for one of several collectives, it is held to wait for *any* of the absent:
   it is released as soon as one of them is. A point-to-point call waits for its peer, unless that is in a call that
   serves it, or has issued as many that could have served it: their data may be on its way. A receive from any rank
   waits for any other member, where all messages sent to the rank were taken by receives that are over.
3. *The absent are absent.* A member has not arrived where it has issued fewer collectives in this very group (same
   name and members) than the number waited for, counting the call that it is in. A member that has said nothing, whose
   counts contradict each other or what it is in (a group of two backends has two counts), or whose board has a stale
   heartbeat, counts as able to move.
4. *The number is not too high.* A thread in a synchronous call waits for the collective it issued last. Everywhere else
   (backward, wait(), a device) it could wait for any that is not complete; then the lowest of them is taken: a
   rank that has not issued that one has issued none of the later ones either, so fewer members count as absent.
5. *No other thread helps.* A thread other than the training one could issue the missing collective. A rank counts as
   able to move where another thread stands in a collective, runs the user's code or torch.distributed's, or has issued
   collectives before; that it has issued none so far says nothing. So does a rank whose main program is over, as long
   as such a thread keeps the process.

6. *A wrong partner never becomes the right one.* A member that has issued another kind of operation under the number
   waited for can never issue the right one under it. On gloo the two are never paired: its messages carry the number
   and the kind; so there such a member is held to arrive never, whatever it does. Nor does a root ever send that has
   issued the call as a receiver, where all members have. Elsewhere no proof rests on this.
7. *A member that has destroyed the group without having made the call is absent for good.* That it makes new groups
   does not help the old one. A call that it has made, or may have made, can still arrive.

Asynchronous work (NCCL) does not break this: a process that has queued collectives and runs on is not blocked, so it is
able to move, whatever its queue looks like; it takes part in a proof only once its thread blocks. A proof says that the
job is dead, never by itself which rank is to blame.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class Need:
    """What a rank needs to go on: the members absent from a collective.

    Ranks that wait at one place share one Need, which is compared by identity: so the graph grows with the ranks, not
    with their square. `every` is false where one of `absent` is enough to release the rank.
    """

    absent: tuple[int, ...]
    every: bool = True
    never: tuple[int, ...] = ()  # members that have issued something else under this number: nothing releases the rank
    group: str = ""
    members: tuple[int, ...] = ()
    seq: int = 0
    op: str = ""


@dataclass
class WaitGraph:
    """Needs of ranks, and ranks that never move. A rank that is neither in `needs` nor in `gone` can move."""

    needs: dict[int, Need] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)  # dead or stopped: they never arrive

    def deadlocked(self) -> frozenset[int]:
        """Ranks that wait and can never go on. Linear in the ranks and the members absent per shared need."""
        waiting = defaultdict(list)
        for rank, need in self.needs.items():
            if rank not in self.gone:
                waiting[need].append(rank)
        blocked: dict[Need, int] = {}
        watchers: dict[int, list[Need]] = defaultdict(list)
        held = {rank for ranks in waiting.values() for rank in ranks} | self.gone
        ready: deque[Need] = deque()
        for need in waiting:
            holding = [rank for rank in need.absent if rank in held]
            blocked[need] = len(holding) if need.every else int(len(holding) == len(need.absent) > 0)
            blocked[need] += len(need.never)
            if blocked[need] == 0:
                ready.append(need)
            for rank in holding:
                watchers[rank].append(need)
        while ready:
            need = ready.popleft()
            for rank in waiting.pop(need, ()):
                held.discard(rank)
                for watcher in watchers.get(rank, ()):
                    blocked[watcher] -= 1 if watcher.every else blocked[watcher] - len(watcher.never)
                    if blocked[watcher] == 0 and watcher in waiting:
                        ready.append(watcher)
        return frozenset(rank for ranks in waiting.values() for rank in ranks)

    def chain(self, starts: Iterable[int], causes: Iterable[int]) -> list[int]:
        """The shortest way along the waits from one of `starts` to one of `causes`, both included; empty for none.

        Linear in the ranks and the members absent per need. A start that is a cause itself is left out.
        """
        causes = set(causes)
        queue = deque(rank for rank in starts if rank not in causes)
        before = {rank: rank for rank in queue}
        seen: set[Need] = set()
        while queue:
            rank = queue.popleft()
            if rank in causes:
                return _path(before, rank)
            need = self.needs.get(rank)
            if need is None or need in seen:
                continue
            seen.add(need)
            for absent in (*need.absent, *need.never):
                if absent not in before:
                    before[absent] = rank
                    queue.append(absent)
        return []

    def cycle(self, among: Iterable[int]) -> list[int]:
        """A shortest-found cycle of waits among the ranks `among`, in order; empty where there is none."""
        among = set(among)
        state: dict[int, int] = {}
        for start in sorted(among):
            path: list[int] = []
            rank = start
            while rank not in state:
                state[rank] = start
                path.append(rank)
                need = self.needs.get(rank)
                following = next((other for other in need.absent if other in among), None) if need else None
                if following is None:
                    break
                rank = following
            else:
                if state[rank] == start and rank in path:
                    return path[path.index(rank) :]
        return []


def _path(before: Mapping[int, int], last: int) -> list[int]:
    path = [last]
    while before[path[-1]] != path[-1]:
        path.append(before[path[-1]])
    return path[::-1]
