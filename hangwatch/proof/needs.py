"""What releases a rank that waits in a collective: the members that have not issued it."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.model import Phase
from hangwatch.proof.graph import Need
from hangwatch.ranks.ledger import Group, Ledger, family
from hangwatch.stacks.activity import IN_DDPS_FORWARD

FROM_ROOT = ("broadcast", "scatter")  # a receiver waits for the root; for which ranks the root waits is not defined
TO_ROOT = ("reduce", "gather")  # the root waits for all, the others perhaps for no rank
SYMMETRIC = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier", "gradients", "parametercheck")


def needs_everybody(op: str) -> bool:
    """No member can complete `op` before every member has issued it. False for rooted and unknown operations."""
    return op.replace("_", "").replace(" ", "").startswith(SYMMETRIC)


class Needs:
    """The needs of one moment: ranks that wait for the same members at one number of one group share one."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[tuple[object, ...], Need] = {}

    def of(self, rank: int, candidates: list[tuple[Group, int]], op: str, root: int | None) -> Need | None:
        """What releases `rank`; None where it may be waiting for something that no rank is known to keep from it.

        Args:
            rank: the rank that waits.
            candidates: (group, number) of each collective that it may be waiting for.
            op: the operation that it called, "" where that is not known.
            root: the root of a rooted operation.
        """
        needs = [self._collective(rank, group, seq, op, root) for group, seq in candidates]
        if len(needs) == 1:
            return needs[0]
        known = [need for need in needs if need is not None and need.absent]
        if len(known) < len(needs):
            return None
        everyone = tuple(sorted({rank for need in known for rank in need.absent}))
        return Need(everyone, False, group=known[0].group, members=known[0].members, seq=known[0].seq, op=op)

    def at_monitored_barrier(self, group: Group, inside: frozenset[int]) -> Need | None:
        """The members that are not `inside` a monitored barrier; None where all are."""
        key = (id(group), "monitored_barrier")
        if key not in self._known:
            absent = tuple(sorted(set(group.members) - inside))
            self._known[key] = Need(absent, group=group.name, members=group.members, op="monitored_barrier")
        return self._known[key] if self._known[key].absent else None

    def _collective(self, rank: int, group: Group, seq: int, op: str, root: int | None) -> Need | None:
        kind = family(op)
        if op in IN_DDPS_FORWARD and root is None:
            root = group.members[0]
        if kind in FROM_ROOT and (root is None or root == rank):
            return None
        if not needs_everybody(op) and kind not in FROM_ROOT and (kind not in TO_ROOT or root != rank):
            return None
        need = self._shared(group, seq, op, root if kind in FROM_ROOT else None)
        if rank in need.absent:
            return None  # it is in that very call: these counts contradict what the rank does
        return need if need.absent or need.never else None

    def _shared(self, group: Group, seq: int, op: str, root: int | None) -> Need:
        kind = family(op)
        key = (id(group), seq, kind, root)
        if key not in self._known:
            absent = tuple(sorted(group.behind(seq)))
            never = tuple(sorted({*self._wrong_partners(group, seq, kind), *self._left(group, seq)}))
            if root is not None:
                absent = _only(root, absent)
                never = _only(root, never) or self._no_root(group, seq, kind, root)
            self._known[key] = Need(absent, True, never, group.name, group.members, seq, op)
        return self._known[key]

    def _wrong_partners(self, group: Group, seq: int, kind: str) -> tuple[int, ...]:
        """Members that have issued another kind of operation under this number, where the backend tells them apart."""
        if not kind or not all(head.backend == "gloo" for head in group.heads.values()):
            return ()
        kinds = ((rank, self._kind_at(rank, group, seq)) for issued, rank in group.order if issued >= seq)
        return tuple(sorted(rank for rank, other in kinds if other and other != kind))

    def _left(self, group: Group, seq: int) -> Iterator[int]:
        """Members that have destroyed all of their groups, this one among them, without having made that call.

        What a member had sent before it left may still be on its way. Boards record what Python code calls, so only of
        such a call is it known that a member has not made it.
        """
        calls = (self._ledger.call(rank, group.name, seq) for rank in group.heads)
        if not any(call is not None and call.step is not None for call in calls):
            return
        for rank in group.silent:
            entry = self._ledger.evidence.get(rank)
            destroyed = entry is not None and entry.reading is not None and entry.reading.phase is Phase.DESTROYED
            if destroyed and self._ledger.call(rank, group.name, seq) is None:
                yield rank

    def _no_root(self, group: Group, seq: int, kind: str, root: int) -> tuple[int, ...]:
        """`root`, where all members have issued that call, each as a receiver: then none of them is the root."""
        if not all(head.backend == "gloo" for head in group.heads.values()):
            return ()
        calls = {rank: self._ledger.call(rank, group.name, seq) for rank in group.members}
        receive = all(
            call is not None and family(call.op) == kind and call.peer is not None and call.peer != rank
            for rank, call in calls.items()
        )
        return (root,) if receive else ()

    def _kind_at(self, rank: int, group: Group, seq: int) -> str:
        """The kind of operation that `rank` issued as number `seq` of `group`; "" where that is not known."""
        call = self._ledger.call(rank, group.name, seq)
        return family(call.op) if call is not None else ""


def _only(rank: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
    return (rank,) if rank in ranks else ()
