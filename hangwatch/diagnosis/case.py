"""The evidence of one moment, looked at once: what every rule of the diagnosis asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

from ..activity import POINT_TO_POINT, Activity, Doing
from ..divergence import first_divergence, unfinished
from ..ledger import Group, Ledger, family
from ..records import (
    Certainty,
    Collective,
    Divergence,
    Frame,
    Phase,
    Snapshot,
    StepName,
    Wait,
)
from ..waitgraph import Need, WaitGraph
from . import words
from .view import IDLE_CPU_S, OLD_WORDS_S, OVER, RankView

__all__ = ["IDLE_CPU_S", "OLD_WORDS_S", "Blocked", "Case", "RankView", "needs_everybody", "once", "what"]

MOST_RANKS = 1 << 17  # a WORLD_SIZE beyond it is a slip of the keyboard
FROM_ROOT = ("broadcast", "scatter")  # a receiver waits for the root, and nobody can say for whom the root waits
TO_ROOT = ("reduce", "gather")  # the root waits for everybody, the others perhaps for nobody
SYMMETRIC = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier", "gradients", "parametercheck")
Answer = TypeVar("Answer")


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
        if self.call is not None and self.activity.op in ("", "gradients", "buffers"):
            return self.call.op
        return self.activity.op or (self.call.op if self.call is not None else "")

    @property
    def to_a_peer(self) -> bool:
        """A send or a receive, also one that is waited for later."""
        return self.activity.op in POINT_TO_POINT or (self.call is not None and self.call.op in POINT_TO_POINT)

    @property
    def where(self) -> Frame | None:
        return self.activity.where


def once(function: Callable[[Case], Answer]) -> Callable[[Case], Answer]:
    """Answers a question about a case once, and from memory when other rules ask it again."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def ask(case: Case) -> Answer:
        if name not in case.memory:
            case.memory[name] = function(case)
        answer: Answer = case.memory[name]
        return answer

    return ask


class Case:
    """A snapshot with everything derived that more than one rule needs."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.job = snapshot.job
        self.ranks = {
            entry.rank: RankView(entry.rank, entry, snapshot.sampled_twice)
            for entry in sorted(snapshot.ranks, key=lambda entry: entry.rank)
        }
        self.ledger = Ledger(view.evidence for view in self.ranks.values())
        self.memory: dict[str, Any] = {}  # answers of functions marked `once`
        self._needs: dict[tuple[object, ...], Need] = {}

    def __iter__(self) -> Iterator[RankView]:
        return iter(self.ranks.values())

    @property
    def size(self) -> int:
        return self.job.world_size or (max(self.ranks, default=-1) + 1)

    @cached_property
    def absent(self) -> tuple[int, ...]:
        """Ranks of the job of which nothing is known: no board, no process."""
        size = min(self.job.world_size or 0, MOST_RANKS)
        return tuple(rank for rank in range(size) if rank not in self.ranks)

    @cached_property
    def gone(self) -> frozenset[int]:
        """Ranks that will never issue a collective again: dead, stopped, or past the end of their training."""
        return frozenset(view.rank for view in self if view.dead or view.stopped or self._left(view))

    @staticmethod
    def _left(view: RankView) -> bool:
        ending = view.main.doing in (Doing.JOIN_THREADS, Doing.JOIN_CHILD, Doing.QUEUE_FEEDER)
        return view.phase in OVER and view.phase is not Phase.DESTROYED and ending and view.steady

    @property
    def came_down(self) -> bool:
        """A rank has died, or is dying of an error."""
        return any((view.dead and not view.finished) or view.raised for view in self)

    # -------------------------------------------------------------- who waits

    @cached_property
    def blocked(self) -> dict[int, Blocked]:
        """Ranks that stand in a collective or point-to-point call, certain or not."""
        found = (self._blocked(view) for view in self if not (view.dead or view.stopped))
        return {entry.rank: entry for entry in found if entry is not None}

    def _blocked(self, view: RankView) -> Blocked | None:
        now = view.now
        if not now.in_collective:
            return None
        if now.op in POINT_TO_POINT or self._open_peer(view) is not None:
            return self._blocked_by_peer(view)
        candidates = self._candidates(view)
        if not candidates:
            return Blocked(view.rank, now)
        group, seq = candidates[0]
        call = self.ledger.call(view.rank, group.name, seq)
        op = call.op if call is not None and now.op in ("", "gradients") else now.op
        need = self._need(view.rank, candidates, op, call.peer if call is not None else None)
        return Blocked(view.rank, now, group, seq, need, call, certain=need is not None and self._certain(view))

    def _candidates(self, view: RankView) -> list[tuple[Group, int]]:
        """(group, number) of the collectives that this rank may be waiting for."""
        calls = {
            (call.group, call.seq)
            for call in self.ledger.open_calls(view.rank)
            if _same_thread(call, view.now) and call.seq > 0 and call.op not in POINT_TO_POINT
        }
        if len(calls) == 1 and view.now.doing in (Doing.COLLECTIVE, Doing.WORK_WAIT):
            name, seq = calls.pop()
            group = self.ledger.group(view.rank, name)
            if group is not None:
                return [(group, seq)]
        outstanding = self.ledger.outstanding(view.rank)
        if view.now.exact and len(outstanding) == 1:
            return [(outstanding[0][0], outstanding[0][2])]
        return [(group, lowest) for group, lowest, _ in outstanding]

    def _need(self, rank: int, candidates: list[tuple[Group, int]], op: str, root: int | None) -> Need | None:
        """What releases `rank`; None where it may be waiting for something that nobody is known to keep from it."""
        needs = [self._collective_need(rank, group, seq, op, root) for group, seq in candidates]
        if len(needs) == 1:
            return needs[0]
        known = [need for need in needs if need is not None and need.absent]
        if len(known) < len(needs):
            return None
        everyone = tuple(sorted({rank for need in known for rank in need.absent}))
        return Need(everyone, False, group=known[0].group, members=known[0].members, seq=known[0].seq, op=op)

    def _collective_need(self, rank: int, group: Group, seq: int, op: str, root: int | None) -> Need | None:
        """One shared Need for all ranks that wait for the same members at one number of one group."""
        kind = family(op)
        if op == "buffers" and root is None:
            root = group.members[0]
        if kind in FROM_ROOT and (root is None or root == rank):
            return None
        if not needs_everybody(op) and kind not in FROM_ROOT and (kind not in TO_ROOT or root != rank):
            return None
        key = (id(group), seq, kind, root if kind in FROM_ROOT else None)
        if key not in self._needs:
            absent, never = tuple(sorted(group.behind(seq))), self._wrong_partners(group, seq, kind)
            if kind in FROM_ROOT:
                absent, never = _only(root, absent), _only(root, never)
            self._needs[key] = Need(absent, True, never, group.name, group.members, seq, op)
        need = self._needs[key]
        return need if need.absent or need.never else None

    def _wrong_partners(self, group: Group, seq: int, kind: str) -> tuple[int, ...]:
        """Members that have issued another kind of operation under this number, where the backend tells them apart."""
        if not kind or not all(head.backend == "gloo" for head in group.heads.values()):
            return ()
        kinds = ((rank, self.kind_at(rank, group, seq)) for issued, rank in group.order if issued >= seq)
        return tuple(sorted(rank for rank, other in kinds if other and other != kind))

    def kind_at(self, rank: int, group: Group, seq: int) -> str:
        """The kind of operation that `rank` issued as number `seq` of `group`; "" where nobody knows."""
        call = self.ledger.call(rank, group.name, seq)
        return family(call.op) if call is not None else ""

    def _certain(self, view: RankView) -> bool:
        """The rank's words and samples bear a proof: see the conditions 1 and 5 in hangwatch.waitgraph."""
        now = view.now
        if not view.steady or view.busy or self.stale(view):
            return False
        if any(thread.in_collective for thread in view.threads if thread.thread_id != now.thread_id):
            return False
        others = {thread.thread for thread in view.threads if thread.thread_id != now.thread_id and thread.thread}
        if others and not others.isdisjoint(self.ledger.issuers(view.rank)):
            return False
        return now.doing is Doing.COLLECTIVE or now.native or view.idle

    def stale(self, view: RankView) -> bool:
        """The rank's board tells the past: its ticker has stopped, or there is no board."""
        reading = view.reading
        if reading is None:
            return not view.evidence.collectives.heads
        return reading.taken_at - reading.ticker_at > OLD_WORDS_S and view.evidence.collectives.source == "board"

    # -------------------------------------------------------------- point to point

    def _open_peer(self, view: RankView) -> Collective | None:
        calls = [call for call in self.ledger.open_calls(view.rank) if _same_thread(call, view.now)]
        found = [call for call in calls if call.op.rpartition(":")[2] in POINT_TO_POINT]
        return found[-1] if found and len(found) == len(calls) else None

    def _blocked_by_peer(self, view: RankView) -> Blocked:
        call = self._open_peer(view)
        if call is None or call.peer is None or call.peer == view.rank:
            return Blocked(view.rank, view.now, call=call)
        need = Need((call.peer,), group=call.group, op=call.op, seq=call.seq)
        certain = self._certain(view) and not self._matched(view.rank, call)
        return Blocked(view.rank, view.now, self.ledger.group(view.rank, call.group), call.seq, need, call, certain)

    def _matched(self, rank: int, call: Collective) -> bool:
        """The peer is inside, or has recorded, a call that could serve this one."""
        peer = self.ranks.get(call.peer) if call.peer is not None else None
        if peer is None:
            return True
        other = "recv" if "send" in call.op else "send"
        return any(
            other in served.op and served.peer in (rank, None) and _same_tag(served, call)
            for served in self.ledger.open_calls(peer.rank)
        )

    # -------------------------------------------------------------- the proof

    @cached_property
    def graph(self) -> WaitGraph:
        needs = {rank: entry.need for rank, entry in self.blocked.items() if entry.certain and entry.need is not None}
        return WaitGraph(needs, set(self.gone))

    @cached_property
    def deadlocked(self) -> frozenset[int]:
        """Ranks of which it is proven that they can never go on."""
        return self.graph.deadlocked()

    @cached_property
    def proven(self) -> bool:
        """Nobody who lives and has not ended its training can ever go on."""
        lost = self.deadlocked | self.gone
        return bool(self.deadlocked) and all(view.rank in lost or view.over for view in self)

    def certainty(self) -> Certainty:
        """How sure a cause is that the ledgers show: proven where the graph proves that the job is dead."""
        return Certainty.PROVEN if self.proven else Certainty.LIKELY

    @cached_property
    def divergences(self) -> tuple[Divergence, ...]:
        """Each group's first step with different numbers of collectives, as remembered and as the rings show it."""
        readings = [view.reading for view in self if view.reading is not None]
        found = [*self.snapshot.divergences, *first_divergence(readings), *self._unfinished()]
        return tuple(sorted(found, key=lambda divergence: divergence.step))

    def _unfinished(self) -> Iterator[Divergence]:
        for group in self.ledger.groups.values():
            readings = {
                rank: reading
                for rank in group.heads
                if (reading := self.ranks[rank].reading) is not None and reading.steps
            }
            # The last word of a rank that died is a second old: what it had issued when its step began is certain.
            begun = {rank: reading.steps[-1].issued.get(group.name, 0) for rank, reading in readings.items()}
            issued = {rank: max(group.issued(rank) or 0, count) for rank, count in begun.items()}
            found = unfinished(readings, group.key, issued)
            if found is not None:
                yield found

    # -------------------------------------------------------------- the whole job

    @cached_property
    def training_over(self) -> bool:
        """Every rank that still lives has ended its training, and no one waits in a collective."""
        living = [view for view in self if not view.dead]
        return bool(living) and all(view.over for view in living) and not self.blocked

    def awaited(self) -> frozenset[int]:
        """Ranks that somebody waits for and that do not wait in a collective themselves: the ends of all waits."""
        needs = {id(entry.need): entry.need for entry in self.blocked.values() if entry.need is not None}
        if (
            not needs and not self.ledger.groups
        ):  # no counts at all: whoever is in no collective keeps the others waiting
            return frozenset(view.rank for view in self if self.blocked and view.rank not in self.blocked)
        return frozenset(rank for need in needs.values() for rank in need.absent if rank not in self.blocked)

    def wait(self, rank: int, awaited: tuple[int, ...]) -> Wait:
        """The edge of the wait-for graph from `rank` to `awaited`, in words."""
        entry = self.blocked.get(rank)
        return Wait(rank, awaited, what(entry) if entry else "", entry.where if entry else None)

    def victims(self, culprits: Iterable[int]) -> tuple[int, ...]:
        """Ranks that stand in a collective and are not among `culprits`."""
        blamed = set(culprits)
        return tuple(rank for rank in self.blocked if rank not in blamed)

    def stalled(self, ranks: Iterable[int]) -> bool:
        """Patience has run out for all of `ranks` of which anything is known (and for at least one)."""
        known = [self.ranks[rank].evidence for rank in ranks if rank in self.ranks]
        return bool(known) and all(entry.stalled for entry in known)

    def still(self, ranks: Iterable[int], least_s: float) -> bool:
        """One of `ranks` has not moved for `least_s` seconds, or its patience has run out."""
        return any(self.ranks[rank].evidence.still_s > least_s or self.stalled([rank]) for rank in ranks)

    def usual_place(self, ranks: Iterable[int]) -> Frame | None:
        """The user's line where most of `ranks` stand."""
        places = Counter(
            view.where for view in (self.ranks[rank] for rank in ranks if rank in self.ranks) if view.where
        )
        return places.most_common(1)[0][0] if places else None

    def furthest_step(self, ranks: Iterable[int]) -> StepName:
        """The step in which most of `ranks` are."""
        steps = Counter(self.ranks[rank].step for rank in ranks if rank in self.ranks)
        return steps.most_common(1)[0][0] if steps else StepName()

    def wait_words(self, ranks: Iterable[int]) -> str:
        """`ranks 0-2 wait`, `rank 3 waits`."""
        found = list(ranks)
        return f"{self.name(found)} {words.verb(len(found), 'waits', 'wait')}"

    def name(self, ranks: Iterable[int], *, capital: bool = False) -> str:
        """The ranks in words: "all ranks", "ranks 0-2"."""
        found = set(ranks)
        if len(found) > 1 and len(found) == self.size:
            return "All ranks" if capital else "all ranks"
        return words.ranks(found, capital=capital)


def what(entry: Blocked) -> str:
    """`all_reduce 12 of group 0`, as far as it is known."""
    name = {"gradients": "the gradients' all_reduce", "buffers": "the broadcast of buffers", "": "a collective"}
    op = name.get(entry.op, entry.op)
    if entry.call is not None and entry.call.op in POINT_TO_POINT:
        return op
    number = f" {entry.seq}" if entry.seq else ""
    return f"{op}{number} of group {entry.group.name}" if entry.group is not None else f"{op}{number}"


def needs_everybody(op: str) -> bool:
    """No member can complete `op` before every member has issued it. False for rooted and unknown operations."""
    return op.replace("_", "").replace(" ", "").startswith(SYMMETRIC)


def _same_thread(call: Collective, now: Activity) -> bool:
    return not call.thread_name or not now.thread or call.thread_name == now.thread


def _only(rank: int | None, ranks: tuple[int, ...]) -> tuple[int, ...]:
    return (rank,) if rank is not None and rank in ranks else ()


def _same_tag(one: Collective, other: Collective) -> bool:
    return one.group == other.group and (one.tag or 0) == (other.tag or 0)
