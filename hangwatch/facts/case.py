"""The evidence of one moment, looked at once: what every rule of the diagnosis asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any, TypeVar

from hangwatch import words
from hangwatch.facts.hosted import with_returned
from hangwatch.facts.rank_end import with_followers
from hangwatch.facts.uncounted import failed_uncounted
from hangwatch.facts.witness import Witness, weigh
from hangwatch.model import Certainty, Culprit, Divergence, Frame, Reading, Snapshot, Status, StepName, Wait, every_rank
from hangwatch.proof.conditions import never_issues_again, uses_a_device
from hangwatch.proof.graph import WaitGraph
from hangwatch.proof.waits import Blocked, Waits
from hangwatch.ranks.comparable_places import with_comparable_places
from hangwatch.ranks.device_waits import COPIES_S, Path, python_frames
from hangwatch.ranks.first_divergence import first_divergence, unfinished
from hangwatch.ranks.issuers import even_without_background, is_by_a_named_thread
from hangwatch.ranks.ledger import Group, Ledger
from hangwatch.ranks.view import RankView
from hangwatch.ranks.views import views_of
from hangwatch.stacks.activity import POINT_TO_POINT
from hangwatch.stacks.frames import user_frame

Answer = TypeVar("Answer")


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
    """A snapshot with everything derived that more than one rule needs.

    `stood`: its ranks have ended since, and are looked at as they stood before that (`facts.as_it_stood`).
    """

    def __init__(self, snapshot: Snapshot, *, stood: bool = False) -> None:
        self.snapshot, self.stood = replace(snapshot, ranks=with_comparable_places(snapshot.ranks)), stood
        self.job = snapshot.job
        self.ranks = with_returned(with_followers(sorted(views_of(self.snapshot), key=lambda view: view.rank)))
        self.ledger = Ledger(view.evidence for view in self.ranks.values())
        self.memory: dict[str, Any] = {}  # answers of functions marked `once`
        self.waits = Waits(self.ranks, self.ledger)

    def __iter__(self) -> Iterator[RankView]:
        return iter(self.ranks.values())

    @property
    def size(self) -> int:
        return self.job.world_size or (max(self.ranks, default=-1) + 1)

    @cached_property
    def absent(self) -> tuple[int, ...]:
        """Ranks of the job of which nothing is known: no board, no process."""
        return tuple(rank for rank in every_rank(self.job.world_size) if rank not in self.ranks)

    @cached_property
    def gone(self) -> frozenset[int]:
        """Ranks that will never issue a collective again: dead, stopped, or past the end of their training."""
        return frozenset(view.rank for view in self if never_issues_again(view))

    def views(self, ranks: Iterable[int]) -> list[RankView]:
        """Those of `ranks` of which anything is known."""
        return [self.ranks[rank] for rank in ranks if rank in self.ranks]

    def culprits(self, ranks: Iterable[int], where: Frame | None = None) -> tuple[Culprit, ...]:
        """`ranks` as culprits, at the line `where`; each at its own where that is not given."""
        return self.culprits_at(ranks, lambda view: where)

    def culprits_at(self, ranks: Iterable[int], place: Callable[[RankView], Frame | None]) -> tuple[Culprit, ...]:
        """`ranks` as culprits, each at a line of its own."""
        return tuple(view.culprit(place(view)) for view in self.views(ranks))

    @property
    def any_rank_failed(self) -> bool:
        """A rank has died, or is dying of an error."""
        return any(view.failed for view in self)

    @property
    def failed_status(self) -> Status | None:
        """The status where a rank has failed; None where that is for proof and patience to say."""
        return Status.FAILED if self.any_rank_failed else None

    @property
    def in_trouble(self) -> bool:
        """Ranks wait, or have failed: a difference between the ranks has to be explained."""
        return bool(self.blocked) or self.any_rank_failed

    # -------------------------------------------------------------- waits

    @cached_property
    def blocked(self) -> dict[int, Blocked]:
        """Ranks that stand in a collective or point-to-point call, certain or not."""
        return self.waits.blocked()

    @cached_property
    def all_wait(self) -> bool:
        """Every living rank stands in a call: none is on its way in code of its own."""
        return all(view.rank in self.blocked for view in self if not view.dead)

    def surely_waits(self, view: RankView) -> bool:
        """Its host waits: in a call of torch.distributed that blocks, or for its device.

        In a call of the driver, too, that takes a moment only, where it stands behind a collective that is not done:
        its own call, or that of the thread that computes its gradients.
        """
        return self.shows_its_wait(view) or self._behind_one(view)

    def shows_its_wait(self, view: RankView) -> bool:
        """A frame shows that it waits, and does nothing besides."""
        return view.waits_for_sure or self.waits.shows_device_wait(view)

    def _behind_one(self, view: RankView) -> bool:
        return (self.waits.launches(view) or view.spins) and view.rank in self.blocked

    def works(self, view: RankView) -> bool:
        """`view` shows a sign of work; that it spins in a wait is none."""
        spins = self.waits.spins(view) or python_frames(view) in self._device_lines or self._stands_behind_one(view)
        return view.works_besides if spins else view.works

    def _stands_behind_one(self, view: RankView) -> bool:
        """The driver has not taken what it launches or copies for so long: it takes a processor to wait for a queue."""
        return view.evidence.still_s >= COPIES_S and self._behind_one(view)

    def stands_where_others_wait(self, view: RankView) -> bool:
        """In the frames in which other ranks wait for their device: it probably waits so, for what no counter knows.

        A send or a receive that is queued on a device has no number, and the wait for it no frame.
        """
        return view.rank not in self.blocked and python_frames(view) in self._device_lines

    @cached_property
    def _device_lines(self) -> frozenset[Path]:
        """Python frames in which ranks wait for their device, unless the native frames below them show no such wait."""
        lines = {python_frames(view) for view in self.views(self.blocked) if not view.now.in_collective}
        looked_at = [view for view in self if any(frame.native for frame in view.evidence.main_stack)]
        others = (view for view in looked_at if not (self._behind_one(view) or self.waits.shows_device_wait(view)))
        return frozenset(lines.difference(map(python_frames, others)))

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

        Of a job that may still go on nothing is proven: a difference between ledgers need not be why no rank moves.
        """
        found = weigh(witnesses)
        settled = self.proven or self.any_rank_failed
        return Certainty.LIKELY if found is Certainty.PROVEN and not settled else found

    @cached_property
    def divergences(self) -> tuple[Divergence, ...]:
        """Each group's first step with different numbers of collectives, as remembered and as the rings show it."""
        readings = [view.reading for view in self if view.reading is not None]
        found = [*self.snapshot.divergences, *first_divergence(readings), *self._unfinished()]
        told = (each for each in found if _is_whole(each) and (self._stays(each) or not self._of_background(each)))
        return tuple(sorted(told, key=lambda divergence: divergence.step))

    def _of_background(self, divergence: Divergence) -> bool:
        return even_without_background(self.ledger, divergence)

    def _stays(self, divergence: Divergence) -> bool:
        """The short ranks will never make up for it: they are deadlocked, and no other thread of theirs may call."""
        group = self.ledger.groups.get((divergence.group, divergence.members))
        most = max((group.issued(rank) or 0 for rank in divergence.counts), default=0) if group is not None else 0
        return bool(divergence.short) and all(
            rank in self.deadlocked and group is not None and (group.issued(rank) or 0) < most
            for rank in divergence.short
        )

    def _unfinished(self) -> Iterator[Divergence]:
        for group in self.ledger.groups.values():
            readings = {
                rank: reading
                for rank in group.heads
                if (reading := self.ranks[rank].reading) is not None and reading.steps
            }
            # What a dead rank wrote last may be a second old: what it had issued when its step began is certain.
            begun = {rank: reading.steps[-1].issued.get(group.name, 0) for rank, reading in readings.items()}
            issued = {rank: max(self.ledger.counted(group, rank), count) for rank, count in begun.items()}
            for rank in readings:  # a connection broke in its last call, and it ended before that was counted
                issued[rank] += failed_uncounted(self.ranks[rank], self.ledger, group)
            for rank, last in self._last_calls_of_destroyed(group):
                readings[rank], issued[rank] = last
            found = unfinished(readings, group.key, issued)
            if found is not None:
                yield found

    def _last_calls_of_destroyed(self, group: Group) -> Iterator[tuple[int, tuple[Reading, int]]]:
        """Members that failed and destroyed their groups on the way out, with the number of their last call in `group`.

        Their board has no counts any more, but keeps that call, if it was made in their last step.
        """
        for rank in group.silent:
            view = self.ranks.get(rank)
            if (
                view is None
                or view.reading is None
                or not (view.failed and view.reading.steps and not view.reading.heads)
            ):
                continue
            last = next((call for call in reversed(view.reading.calls) if call.group == group.name), None)
            if last is not None and last.step == view.reading.steps[-1].step:
                yield rank, (view.reading, last.seq)

    # -------------------------------------------------------------- the whole job

    @cached_property
    def training_over(self) -> bool:
        """Every rank that still lives has ended its training, and no rank waits in a collective."""
        living = [view for view in self if not view.dead]
        return bool(living) and all(view.over for view in living) and not self.blocked

    def awaited(self) -> frozenset[int]:
        """Ranks that other ranks wait for and that do not wait in a collective themselves: the ends of all waits."""
        needs = {id(entry.need): entry.need for entry in self.blocked.values() if entry.need is not None}
        if (
            not needs and not self.ledger.groups
        ):  # no counts at all: each rank in no collective keeps the others waiting
            return frozenset(view.rank for view in self if self.blocked and view.rank not in self.blocked)
        return frozenset(rank for need in needs.values() for rank in need.absent if rank not in self.blocked)

    def ends_beside(self, ranks: Iterable[int]) -> bool:
        """All waits end at living ranks in code of their own, and none of `ranks` is one of these.

        With a device they may wait there, too, for what no frame shows.
        """
        ends = self.awaited()
        own = not any(view.dead or view.over or uses_a_device(view, self.ledger) for view in self.views(ends))
        return bool(ends) and own and ends.isdisjoint(ranks)

    def may_wait_for(self, ranks: Iterable[int], others: Iterable[int]) -> bool:
        """One of `ranks` may wait for one of `others`, by way of other waiting ranks too.

        In a collective that is any member of its group: those that have issued its number may have made another call.
        """
        wanted, reached, asked = set(others), set(ranks), set[int]()
        todo = list(reached)
        while todo:
            entry = self.blocked.get(todo.pop())
            if entry is None:
                continue
            if entry.need is None or (entry.group is None and not entry.to_a_peer):
                return True
            for_whom = entry.group.members if entry.group is not None and not entry.to_a_peer else entry.need.absent
            if id(for_whom) not in asked:
                asked.add(id(for_whom))
                todo += set(for_whom) - reached
                reached.update(for_whom)
        return not wanted.isdisjoint(reached)

    def wait(self, rank: int, awaited: tuple[int, ...], also: Iterable[int] = ()) -> Wait:
        """The edge of the wait-for graph from `rank`, and from those that wait `also` like it, to `awaited`."""
        entry = self.blocked.get(rank)
        what, where = (call_words(entry), _line_of(entry)) if entry is not None else ("", None)
        return Wait(rank, awaited, what, where, also=tuple(also))

    def victims(self, culprits: Iterable[int]) -> tuple[int, ...]:
        """Ranks that stand in a collective and are not among `culprits`."""
        blamed = set(culprits)
        return tuple(rank for rank in self.blocked if rank not in blamed)

    def stalled(self, ranks: Iterable[int]) -> bool:
        """Patience has run out for all of `ranks` of which anything is known (and for at least one).

        A rank that waits in a call needs none of its own, once that with all for whom it waits has run out.
        """
        known = self.views(ranks)
        return bool(known) and all(view.evidence.stalled or self._waits_for_stalled(view.rank) for view in known)

    def _waits_for_stalled(self, rank: int) -> bool:
        need = self.blocked[rank].need if rank in self.blocked else None
        absent = need.absent if need is not None else ()
        return 0 < len(absent) == sum(view.evidence.stalled for view in self.views(absent))

    def still(self, ranks: Iterable[int], least_s: float) -> bool:
        """One of `ranks` has not moved for `least_s` seconds, or its patience has run out."""
        return any(self.ranks[rank].evidence.still_s > least_s or self.stalled([rank]) for rank in ranks)

    def usual_place(self, ranks: Iterable[int]) -> Frame | None:
        """The user's line where most of `ranks` stand."""
        places = Counter(view.where for view in self.views(ranks) if view.where)
        return places.most_common(1)[0][0] if places else None

    def at_places(self, ranks: Iterable[int]) -> str:
        """` (train.py:12, train.py:14)`: the user's lines where `ranks` stand, those of most ranks first."""
        places = Counter(view.where for view in self.views(ranks) if view.where)
        shown = [words.place(where) for where, _ in places.most_common(words.SHOWN)]
        return f" ({', '.join(shown)})" if shown else ""

    def text_of(self, where: Frame | None) -> str:
        """The line of code at `where`, as it was quoted with the evidence; "" where it was not."""
        if where is None:
            return ""
        found = (each for each in self.snapshot.excerpts if (each.file, each.line) == where.source_line)
        quoted = (each.lines[each.line - each.first] for each in found if each.line - each.first < len(each.lines))
        return next(quoted, "").strip()

    def step_of(self, ranks: Iterable[int]) -> StepName:
        """The step of the first of `ranks`; that of most ranks where nothing is known of them."""
        return next((view.step for view in self.views(ranks)), self.furthest_step(self.ranks))

    def furthest_step(self, ranks: Iterable[int]) -> StepName:
        """The step in which most of `ranks` are."""
        steps = Counter(view.step for view in self.views(ranks))
        return steps.most_common(1)[0][0] if steps else StepName()

    def say(self, ranks: Iterable[int], one: str, many: str, *, capital: bool = False) -> str:
        """`rank 3 has`, `ranks 0-2 have`: the ranks, with the form of a verb that fits how many they are."""
        found = list(ranks)
        return f"{self.name(found, capital=capital)} {words.verb(len(found), one, many)}"

    def wait_words(self, ranks: Iterable[int]) -> str:
        """`ranks 0-2 wait`, `rank 3 waits`."""
        return self.say(ranks, "waits", "wait")

    def name(self, ranks: Iterable[int], *, capital: bool = False) -> str:
        """The ranks in words: "all ranks", "ranks 0-2"."""
        found = set(ranks)
        if len(found) > 1 and len(found) == self.size:
            return "All ranks" if capital else "all ranks"
        return words.ranks(found, capital=capital)


_NAMES = {
    "gradients": "the gradients' all_reduce",
    "buffers": "the broadcast of buffers",
    "buckets": "the broadcast of the buckets' order",
    "": "a collective",
}


def call_words(entry: Blocked) -> str:
    """`all_reduce 12 of group 0`, as far as it is known."""
    op = _NAMES.get(entry.op, entry.op)
    if entry.call is not None and entry.call.op in POINT_TO_POINT:
        return entry.activity.call or op  # torch's send calls its isend
    number = f" {entry.seq}" if entry.seq else ""
    return f"{op}{number} of group {entry.group.name}" if entry.group is not None else f"{op}{number}"


def _line_of(entry: Blocked) -> Frame | None:
    """Where the rank stands, or where a thread beside the main one has made the call that keeps it."""
    call = entry.call
    beside = call is not None and entry.activity.main and is_by_a_named_thread(call)
    return (user_frame(call.frames) if call is not None and beside else None) or entry.where


def _is_whole(divergence: Divergence) -> bool:
    """It compares at least two ranks, all that it names among them: a record that came over a link need not."""
    return len(divergence.counts) > 1 and divergence.counts.keys() >= {*divergence.short, *divergence.more}
