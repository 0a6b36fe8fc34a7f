"""The evidence of one moment, looked at once: what every rule of the diagnosis asks for."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

from ..divergence import first_divergence, unfinished
from ..ledger import Group, Ledger, family
from ..records import (
    Certainty,
    Collective,
    Culprit,
    Divergence,
    Frame,
    LoaderFacts,
    Phase,
    RankEvidence,
    Reading,
    Snapshot,
    StepName,
    ThreadStack,
    Wait,
)
from ..stacks import POINT_TO_POINT, Activity, Doing, activity, stacks_of_trace
from ..waitgraph import Need, WaitGraph
from . import words

IDLE_CPU_S = 0.2  # CPU time between two samples (about a second apart) below which a process counts as asleep
STARVED_CPU_S = 0.05
QUIET_IO = 1 << 20  # bytes between two samples that the rank may write for us, when it is asked for its collectives
OLD_WORDS_S = 5.0  # a board whose ticker has been silent for longer tells the past
OVER = frozenset({Phase.DESTROYED, Phase.MAIN_DONE, Phase.ATEXIT, Phase.FINALIZING})
FROM_ROOT = ("broadcast", "scatter")  # a receiver waits for the root, and nobody can say for whom the root waits
TO_ROOT = ("reduce", "gather")  # the root waits for everybody, the others perhaps for nobody
SYMMETRIC = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier", "gradients", "parametercheck")
Answer = TypeVar("Answer")
_IDLERS = frozenset({Doing.LOCK, Doing.SLEEP, Doing.JOIN_CHILD, Doing.JOIN_THREADS})


@dataclass(frozen=True)
class RankView:
    """One rank: its evidence and what follows from it alone."""

    rank: int
    evidence: RankEvidence
    sampled_twice: bool

    @property
    def reading(self) -> Reading | None:
        return self.evidence.reading

    @property
    def pid(self) -> int | None:
        reading = self.reading
        return self.evidence.pid or (reading.identity.pid if reading is not None else None)

    @property
    def phase(self) -> Phase | None:
        return None if self.reading is None else self.reading.phase

    @cached_property
    def threads(self) -> tuple[Activity, ...]:
        stacks = self.evidence.stacks or stacks_of_trace(self.evidence.crash_trace)
        return tuple(activity(stack) for stack in stacks)

    @cached_property
    def main(self) -> Activity:
        """What the main thread does."""
        return next((thread for thread in self.threads if thread.main), Activity(Doing.NOTHING))

    @cached_property
    def now(self) -> Activity:
        """What the training thread does: the main one, or another where that trains and the main one only waits."""
        if not self.main.in_collective and self.main.doing in _IDLERS:
            others = [thread for thread in self.threads if not thread.main and thread.in_collective]
            if len(others) == 1 and self.phase not in OVER:
                return others[0]
        return self.main

    @property
    def where(self) -> Frame | None:
        return self.now.where

    # -------------------------------------------------------------- life

    @property
    def state(self) -> str:
        return self.evidence.process.state if self.evidence.process is not None else ""

    @property
    def dead(self) -> bool:
        return self.state in ("X", "Z")

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")

    @property
    def over(self) -> bool:
        """Its training has ended: the process group is destroyed or the main program is done."""
        return self.phase in OVER

    @property
    def finished(self) -> bool:
        """Gone as it should be: with exit code 0, or not known to be otherwise after the main program's end.

        A clean exit may end in SIGABRT, in destructors of torch's gloo; that does no harm any more.
        """
        code = self.evidence.process.exit_code if self.evidence.process is not None else None
        exception = self.reading.exception if self.reading is not None else None
        if not self.dead or self.phase is Phase.FAILED or (exception is not None and exception.fatal):
            return False
        return self.over if code is None or code == -signal.SIGABRT else code == 0

    @property
    def raised(self) -> bool:
        """An uncaught exception is on its way out, or has ended it."""
        return self.reading is not None and self.reading.exception is not None and self.reading.exception.fatal

    @property
    def cpu(self) -> float | None:
        return self.evidence.process.cpu_delta_s if self.evidence.process is not None else None

    @property
    def idle(self) -> bool:
        """Known to use no processor time, and not waiting for a processor either."""
        return self.cpu is not None and self.cpu <= IDLE_CPU_S and self.state != "R"

    @property
    def busy(self) -> bool:
        return self.cpu is not None and self.cpu > IDLE_CPU_S

    @property
    def writing(self) -> bool:
        process = self.evidence.process
        return process is not None and (process.io_delta_bytes or 0) > QUIET_IO

    @property
    def works(self) -> bool:
        """Shows any sign of work: a counter moved, the processor is used, bytes flow, a child computes."""
        if self.dead or self.stopped:
            return False
        if self.evidence.moved or self.busy or self.writing or self._starved:
            return True
        return any((child.facts.cpu_delta_s or 0) > IDLE_CPU_S for child in self.evidence.children)

    @property
    def _starved(self) -> bool:
        """Ready to run, on a machine whose processors are taken."""
        return self.state == "R" and self.cpu is not None and self.cpu > STARVED_CPU_S

    @property
    def steady(self) -> bool:
        """Two samples agree on where the training thread stands, and no counter moved between them."""
        return self.sampled_twice and not self.evidence.moved and self._same_stack

    @cached_property
    def _same_stack(self) -> bool:
        now = _stack(self.evidence.stacks, self.now)
        before = _stack(self.evidence.earlier_stacks, self.now)
        return now is not None and before is not None and _python(now) == _python(before)

    # -------------------------------------------------------------- where it is in the training

    @property
    def step(self) -> StepName:
        if self.reading is None:
            return StepName()
        progress = self.reading.progress
        return StepName(progress.epoch, progress.batch, progress.step if progress.step >= 0 else None)

    @cached_property
    def loader(self) -> LoaderFacts | None:
        """The training loader used last; None where there is none."""
        loaders = [loader for loader in (self.reading.loaders if self.reading else ()) if loader.training]
        return max(loaders, key=lambda loader: (loader.epoch, loader.drawn), default=None)

    def culprit(self, where: Frame | None = None) -> Culprit:
        host = self.evidence.host or (self.reading.identity.host if self.reading else "")
        return Culprit(self.rank, self.pid, host, where=where or self.where)


def _stack(stacks: Iterable[ThreadStack], thread: Activity) -> ThreadStack | None:
    if thread.main:
        return next((stack for stack in stacks if stack.main), None)
    return next((stack for stack in stacks if stack.thread_id == thread.thread_id), None)


def _python(stack: ThreadStack) -> tuple[Frame, ...]:
    return tuple(frame for frame in stack.frames if not frame.native)


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
        return tuple(rank for rank in range(self.job.world_size or 0) if rank not in self.ranks)

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
                if (reading := self.ranks[rank].reading) is not None and reading.steps and not self.ranks[rank].dead
            }
            found = unfinished(readings, group.key, {rank: group.issued(rank) or 0 for rank in readings})
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
