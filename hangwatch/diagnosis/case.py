"""The evidence of one moment, looked at once: what every rule of the diagnosis asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

from ..activity import POINT_TO_POINT, Activity, Doing
from ..divergence import first_divergence, unfinished
from ..frames import name_of
from ..ledger import Group, Ledger, family, is_numbered
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
from .device_waits import Path, may_wait_on_device, python_frames, queued, shows_device_wait
from .view import IDLE_CPU_S, OLD_WORDS_S, OVER, RankView
from .witness import Witness, weigh

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
        """Its main program is over, and no thread of it is left that could still issue a collective."""
        if view.phase not in OVER or view.phase is Phase.DESTROYED or not view.steady:
            return False
        ending = view.main.doing in (Doing.JOIN_THREADS, Doing.JOIN_CHILD, Doing.QUEUE_FEEDER)
        return ending and not view.threads_that_may_communicate()

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
            return self._blocked_by_device(view)
        if now.op in POINT_TO_POINT or self._open_peer(view) is not None:
            return self._blocked_by_peer(view)
        candidates = self._candidates(view)
        if not candidates or raises_by_itself(now):
            return Blocked(view.rank, now)
        group, seq = candidates[0]
        call = self.ledger.call(view.rank, group.name, seq)
        op = call.op if call is not None and now.op in ("", "gradients") else now.op
        need = self._need(view.rank, candidates, op, call.peer if call is not None else None)
        return Blocked(view.rank, now, group, seq, need, call, certain=need is not None and self._certain(view))

    def _blocked_by_device(self, view: RankView) -> Blocked | None:
        """It waits for the first incomplete collective of one of its communicators: nobody knows for which."""
        shown = self._shows_device_wait(view)
        candidates = queued(self.ledger, view.rank)
        if not candidates or not view.steady or not (shown or may_wait_on_device(view)):
            return None
        group, seq = candidates[0]
        call = self.ledger.call(view.rank, group.name, seq)
        op = call.op if call is not None else ""
        need = self._need(view.rank, candidates, op, call.peer if call is not None else None)
        others = view.threads_that_may_communicate()
        certain = need is not None and shown and not others and not self.stale(view)
        return Blocked(view.rank, view.now, group, seq, need, call, certain=certain)

    def _shows_device_wait(self, view: RankView) -> bool:
        return shows_device_wait(view.now) or python_frames(view) in self._device_stacks

    @cached_property
    def _device_stacks(self) -> frozenset[Path]:
        """Python frames below which a native frame of some rank shows a wait on the device."""
        return frozenset(python_frames(view) for view in self if shows_device_wait(view.now))

    def _candidates(self, view: RankView) -> list[tuple[Group, int]]:
        """(group, number) of the collectives that this rank may be waiting for."""
        calls = {
            (call.group, call.seq)
            for call in self.ledger.open_calls(view.rank)
            if _same_thread(call, view.now) and call.seq > 0 and is_numbered(call)
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
        if rank in need.absent:
            return None  # it is in that very call: these counts contradict what the rank does
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
        if not view.steady or view.busy or self.stale(view) or raises_by_itself(now):
            return False
        if view.threads_that_may_communicate():
            return False
        others = {thread.thread for thread in view.threads if thread.thread_id != now.thread_id and thread.thread}
        if others and not others.isdisjoint(self.ledger.issuers(view.rank)):
            return False
        return view.waits_for_sure or (view.sleeps_privately and self._on_host(view))

    def _on_host(self, view: RankView) -> bool:
        """No group of its is of a device, whose engine threads a backward waits for while they compute."""
        return all("nccl" not in group.heads[view.rank].backend for group in self.ledger.groups_of(view.rank))

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
        on_its_way = "send" in call.op and call.peer in self.ranks and self.ranks[call.peer].stopped
        certain = self._certain(view) and not on_its_way and not self._matched(view.rank, call)
        return Blocked(view.rank, view.now, self.ledger.group(view.rank, call.group), call.seq, need, call, certain)

    def _matched(self, rank: int, call: Collective) -> bool:
        """The peer is inside a call that serves this one, or has issued one before whose data may be on its way."""
        peer = self.ranks.get(call.peer) if call.peer is not None else None
        if peer is None:
            return True
        other = "recv" if "send" in call.op else "send"
        inside = any(serves(served, other, rank, call) for served in self.ledger.open_calls(peer.rank))
        mine, theirs = self.ledger.to_peers(rank), self.ledger.to_peers(peer.rank)
        if inside or mine is None or theirs is None:
            return True  # calls that are no longer on record could have been the ones
        made = sum(1 for each in mine if serves(each, call.op, peer.rank, call))
        served = sum(1 for each in theirs if serves(each, other, rank, call))
        return served >= made

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
        """No rank that lives and has not ended its training can ever go on."""
        return bool(self.deadlocked) and self.lost_with(())

    def lost_with(self, held: Iterable[int]) -> bool:
        """No living rank can ever go on, given that those `held` by a fact of the system cannot."""
        lost = self.gone | frozenset(held)
        lost |= WaitGraph(self.graph.needs, set(lost)).deadlocked() if held else self.deadlocked
        return all(view.rank in lost or view.over for view in self)

    def weigh(self, witnesses: Iterable[Witness]) -> Certainty:
        """How certain a cause is that the ledgers show.

        Of a job that may still go on nothing is proven: a difference between ledgers need not be why it stands.
        """
        found = weigh(witnesses)
        settled = self.proven or self.came_down
        return Certainty.LIKELY if found is Certainty.PROVEN and not settled else found

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


def raises_by_itself(now: Activity) -> bool:
    """The call has a timeout of its own, short by its purpose, after which it raises and the program goes on."""
    return now.frame is not None and name_of(now.frame.function) == "monitored_barrier"


def needs_everybody(op: str) -> bool:
    """No member can complete `op` before every member has issued it. False for rooted and unknown operations."""
    return op.replace("_", "").replace(" ", "").startswith(SYMMETRIC)


def _same_thread(call: Collective, now: Activity) -> bool:
    return not call.thread_name or not now.thread or call.thread_name == now.thread


def _only(rank: int | None, ranks: tuple[int, ...]) -> tuple[int, ...]:
    return (rank,) if rank is not None and rank in ranks else ()


def serves(one: Collective, op: str, peer: int, other: Collective) -> bool:
    """`one` is an `op` from or to `peer`, or from any rank, in the group and with the tag of `other`."""
    kind = "send" if "send" in op else "recv"
    return (
        kind in one.op and one.peer in (peer, None) and one.group == other.group and (one.tag or 0) == (other.tag or 0)
    )
