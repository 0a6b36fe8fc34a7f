"""Collectives lined up across ranks: per process group and number, and per step.

Two ranks mean the same group where its name and its members agree; a name alone means nothing (sub-groups of different
ranks often share one). What a rank reports about a group that it is no member of, or reports twice, is not used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise

from hangwatch.model import Collective, GroupHead, RankEvidence, StepEntry, StepName
from hangwatch.ranks.shared_steps import GroupKey
from hangwatch.ranks.two_backends import of_two_backends, passed

CALLS_TOLD = 128  # the latest calls of a group that a rank reports: rules look no further back


@dataclass(frozen=True)
class Step:
    """One step of one rank: what it issued in each group (by name) between this batch and the next.

    `complete` is false for the step that the rank is in now: its counts may still grow. What a rank issues between two
    epochs, to evaluate or to save, belongs to the step that `ends_epoch`.
    """

    step: int
    epoch: int | None
    batch: int | None
    counts: dict[str, int]
    complete: bool
    ends_epoch: bool = False

    @property
    def name(self) -> StepName:
        return StepName(self.epoch, self.batch, self.step)


@dataclass
class Group:
    """One process group with every member's side of it; `heads` lacks members that reported nothing."""

    name: str
    members: tuple[int, ...]
    heads: dict[int, GroupHead] = field(default_factory=dict)

    @property
    def key(self) -> GroupKey:
        return (self.name, self.members)

    def issued(self, rank: int) -> int | None:
        """How many collectives `rank` has issued here; None where it has not reported that."""
        head = self.heads.get(rank)
        return None if head is None else max(head.issued, 0)

    @cached_property
    def order(self) -> list[tuple[int, int]]:
        """(issued, rank) of every member that reported it, the furthest behind first."""
        return sorted((max(head.issued, 0), rank) for rank, head in self.heads.items())

    @cached_property
    def member_set(self) -> frozenset[int]:
        return frozenset(self.members)

    @cached_property
    def silent(self) -> tuple[int, ...]:
        """Members that have reported nothing about this group."""
        return tuple(rank for rank in self.members if rank not in self.heads)

    def behind(self, seq: int) -> list[int]:
        """Members known not to have issued collective `seq` yet."""
        found = []
        for issued, rank in self.order:
            if issued >= seq:
                break
            found.append(rank)
        return found


class Ledger:
    """The ranks' collectives, lined up. Build it once per snapshot; every question is answered from memory."""

    def __init__(self, ranks: Iterable[RankEvidence]) -> None:
        self.evidence = {entry.rank: entry for entry in ranks}
        self.groups: dict[GroupKey, Group] = {}
        self.doubtful: set[tuple[int, str]] = set()  # (rank, group name): contradictory, never used for a proof
        self.beside: set[tuple[int, str]] = set()  # (rank, group name): in a call whose number says nothing
        self._names: dict[int, dict[str, Group]] = {}
        self._known: dict[tuple[str, int], Group] = {}
        for rank, entry in self.evidence.items():
            for head in _heads(entry):
                self._add(rank, head)
            for call in self.open_calls(rank):
                self._inside(rank, call)
        self.beside = passed({(rank, name): self._names[rank][name].heads for rank, name in self.beside})
        # The calls behind that: of another backend than the one that the group counts.
        self._uncounted = {
            (rank, name, call.seq) for rank, name in self.beside for call in self.open_calls(rank) if call.group == name
        }
        for rank, name in self.doubtful:
            group = self._names.get(rank, {}).pop(name, None)
            if group is not None:
                group.heads.pop(rank, None)
        self._steps: dict[int, tuple[Step, ...]] = {}
        self._calls: dict[int, dict[tuple[str, int], Collective]] = {}

    def _add(self, rank: int, head: GroupHead) -> None:
        group = self._group_of(head)
        names = self._names.setdefault(rank, {})
        if rank not in group.member_set or head.completed > head.issued or names.get(head.name, group) is not group:
            self.doubtful.add((rank, head.name))
            return
        mine = group.heads.get(rank)
        group.heads[rank] = head if mine is None else _later(mine, head)
        names[head.name] = group

    def _inside(self, rank: int, call: Collective) -> None:
        """A rank that is inside a call has issued it, whatever its counts say: they may be those of another backend."""
        group = self._names.get(rank, {}).get(call.group)
        if group is None or call.seq < 1 or not is_numbered(call):
            return
        head = group.heads[rank]
        if of_two_backends(head) and call.seq > head.issued:
            self.beside.add((rank, call.group))
        group.heads[rank] = replace(head, issued=max(head.issued, call.seq))

    def counted(self, group: Group, rank: int) -> int:
        """How many collectives `rank` has issued, as the ranks can be compared.

        A group of two backends counts those of one. A call of the other one is told only of ranks that are in it now.
        """
        return (group.issued(rank) or 0) - ((rank, group.name) in self.beside)

    def _group_of(self, head: GroupHead) -> Group:
        """The group that a head means. Ranks of a large job share their tuples of members: those are hashed once."""
        place = (head.name, id(head.members))
        if place not in self._known:
            self._known[place] = self.groups.setdefault(head.key, Group(head.name, head.members))
        return self._known[place]

    def group(self, rank: int, name: str) -> Group | None:
        """The group that `rank` means by `name`; None where that is not known for sure."""
        return self._names.get(rank, {}).get(name)

    def groups_of(self, rank: int) -> Iterator[Group]:
        yield from self._names.get(rank, {}).values()

    def outstanding(self, rank: int) -> list[tuple[Group, int, int]]:
        """(group, lowest and highest number issued and not completed) for each group of `rank` that has any."""
        found = []
        for group in self.groups_of(rank):
            head = group.heads[rank]
            if head.issued > max(head.completed, 0):
                found.append((group, max(head.completed, 0) + 1, head.issued))
        return found

    # -------------------------------------------------------------- single calls

    def call(self, rank: int, name: str, seq: int) -> Collective | None:
        """What `rank` issued as number `seq` of the group that it calls `name`, where that is still recorded."""
        if rank in self._calls:
            return self._calls[rank].get((name, seq))
        entry = self.evidence.get(rank)
        if entry is None or (rank, name, seq) in self._uncounted:
            return None
        told, own = (_backwards(calls, name, seq) for calls in (entry.collectives.recent, entry.board_calls))
        if told is None or (own is not None and own.frames and not told.frames):
            told = own
        return told if told is not None else _backwards(self.open_calls(rank), name, seq)

    def calls(self, rank: int) -> dict[tuple[str, int], Collective]:
        """All recorded collectives of `rank` by (group name, number), as issued, without point-to-point calls."""
        if rank not in self._calls:
            entry = self.evidence.get(rank)
            self._calls[rank] = {} if entry is None else self._numbered(entry)
        return self._calls[rank]

    def _numbered(self, entry: RankEvidence) -> dict[tuple[str, int], Collective]:
        """Without the call that it is in where its number is that of the other backend's next one."""
        found = _calls(entry)
        if not self._uncounted:
            return found
        return {key: call for key, call in found.items() if (entry.rank, *key) not in self._uncounted}

    def calls_in(self, rank: int, name: str) -> list[Collective]:
        """The recorded collectives of `rank` in the group that it calls `name`, as issued."""
        return [call for (group, _), call in self.calls(rank).items() if group == name]

    def calls_between(self, rank: int, name: str, span: tuple[int, int]) -> list[Collective]:
        """Those of them with numbers in `span` (first - 1, last), as that of a step."""
        return [call for call in self.calls_in(rank, name) if span[0] < call.seq <= span[1]]

    def under(self, name: str, seq: int, ranks: Iterable[int]) -> dict[int, Collective]:
        """What each of `ranks` issued as number `seq` of the group `name`, without those that have no record of it."""
        return {rank: call for rank in ranks if (call := self.call(rank, name, seq)) is not None}

    def open_calls(self, rank: int) -> tuple[Collective, ...]:
        """Calls that a thread of `rank` is inside right now."""
        entry = self.evidence.get(rank)
        if entry is None:
            return ()
        return entry.collectives.open_calls or (entry.reading.open_calls if entry.reading else ())

    def to_peers(self, rank: int) -> list[Collective] | None:
        """All sends and receives of `rank`, those that it is in too; None where the record has lost some."""
        entry = self.evidence.get(rank)
        if entry is None:
            return None
        recorded = self.messages(rank)
        known = {(call.group, call.seq, call.op, call.peer) for call in recorded}
        inside = [call for call in self.open_calls(rank) if is_point_to_point(call)]
        found = recorded + [call for call in inside if (call.group, call.seq, call.op, call.peer) not in known]
        counted = sum(head.sent + head.received for head in entry.board_heads)
        return found if len(found) >= counted else None

    def messages(self, rank: int) -> list[Collective]:
        """The sends and receives of `rank` that are still on record, oldest first."""
        entry = self.evidence.get(rank)
        if entry is None:
            return []
        own = [call for call in entry.board_calls if is_point_to_point(call)]
        return own or [call for call in entry.collectives.recent if is_point_to_point(call)]

    def issuers(self, rank: int) -> set[str]:
        """Names of the threads of `rank` that have issued recorded calls."""
        entry = self.evidence.get(rank)
        return {call.thread_name for call in (*entry.collectives.recent, *entry.board_calls)} if entry else set()

    # -------------------------------------------------------------- steps

    def steps(self, rank: int) -> tuple[Step, ...]:
        """The recorded steps of `rank`, oldest first; the last one is the one it is in."""
        if rank not in self._steps:
            self._steps[rank] = tuple(self._steps_of(rank))
        return self._steps[rank]

    def complete_steps(self, rank: int) -> list[Step]:
        """The recorded steps of `rank` that are over, oldest first."""
        return [step for step in self.steps(rank) if step.complete]

    def _steps_of(self, rank: int) -> Iterator[Step]:
        entry = self.evidence.get(rank)
        entries = entry.board_steps if entry is not None else ()
        if not entries:
            return
        for before, after in pairwise(entries):
            yield replace(_step(before, after.issued, complete=True), ends_epoch=before.epoch != after.epoch)
        # A head may be a second older than the newest step, where the rank died.
        begun = entries[-1].issued
        heads = {g.name: max(g.heads[rank].issued, begun.get(g.name, 0), 0) for g in self.groups_of(rank)}
        yield _step(entries[-1], heads, complete=False)

    def span(self, rank: int, name: str, step: int) -> tuple[int, int] | None:
        """The numbers (first - 1, last) of what `rank` issued in the group `name` in its step `step`."""
        entry = self.evidence.get(rank)
        steps = entry.board_steps if entry is not None else ()
        index = bisect_left(steps, step, key=lambda each: each.step)
        if index == len(steps) or steps[index].step != step:
            return None
        if index + 1 < len(steps):
            return steps[index].issued.get(name, 0), steps[index + 1].issued.get(name, 0)
        group = self.group(rank, name)
        return None if group is None else (steps[index].issued.get(name, 0), group.issued(rank) or 0)

    def step_of(self, rank: int, call: Collective) -> int | None:
        """The step in which `rank` issued `call`: as recorded with it, else as the step ledger counts."""
        if call.step is not None:
            return call.step
        entry = self.evidence.get(rank)
        steps = entry.board_steps if entry is not None else ()
        index = bisect_left(steps, call.seq, key=lambda each: each.issued.get(call.group, 0)) - 1
        return steps[index].step if index >= 0 else None

    def first_apart(self, rank: int, other: int) -> Step | None:
        """The first step, of those that both still have on record, in which two ranks issued different numbers."""
        theirs = {(step.epoch, step.batch, step.step): step for step in self.complete_steps(other)}
        for step in self.complete_steps(rank):
            twin = theirs.get((step.epoch, step.batch, step.step))
            if twin is not None and step.counts != twin.counts:
                return step
        return None

    def usual(self, rank: int, name: str) -> int | None:
        """How many collectives `rank` usually issues in the group `name` in one step; None where there is no rule."""
        counts = Counter(step.counts.get(name, 0) for step in self.complete_steps(rank))
        if not counts:
            return None
        count, times = counts.most_common(1)[0]
        return count if times * 2 > sum(counts.values()) else None


def all_complete(heads: Sequence[GroupHead]) -> bool:
    """Members of a group have issued as many collectives, and all of these are complete."""
    return len({(head.issued, head.completed) for head in heads}) == 1 and heads[0].issued == heads[0].completed


def _heads(entry: RankEvidence) -> tuple[GroupHead, ...]:
    retired = _retired(entry.collectives.recent)
    return tuple(
        replace(head, completed=max(head.completed, min(retired.get(head.name, -1), head.issued)))
        for head in (*entry.board_heads, *entry.collectives.heads)
    )


def _retired(calls: Sequence[Collective]) -> dict[str, int]:
    """For each group the highest number up to which the calls that are listed have completed.

    The recorder's own count of completed collectives can lag behind what it says of each call.
    """
    found: dict[str, int] = {}
    stopped: set[str] = set()
    for call in sorted((call for call in calls if is_numbered(call)), key=lambda call: call.seq):
        if not call.retired:
            stopped.add(call.group)
        elif call.group not in stopped:
            found[call.group] = call.seq
    return found


def _later(one: GroupHead, other: GroupHead) -> GroupHead:
    return one if (one.issued, one.completed) >= (other.issued, other.completed) else other


def _calls(entry: RankEvidence) -> dict[tuple[str, int], Collective]:
    found: dict[tuple[str, int], Collective] = {}
    for call in (*entry.board_calls, *entry.collectives.recent):  # the flight recorder's entries are complete: they win
        known = found.get((call.group, call.seq))
        if is_numbered(call) and (known is None or call.frames or not known.frames):
            found[call.group, call.seq] = call
    for call in entry.collectives.open_calls or (entry.reading.open_calls if entry.reading else ()):
        if is_numbered(call):
            found.setdefault((call.group, call.seq), call)
    return dict(sorted(found.items(), key=lambda item: (item[1].at or 0.0, item[0][1])))


def _backwards(calls: tuple[Collective, ...], name: str, seq: int) -> Collective | None:
    """The newest entry of that number; the search ends where the group's numbers have become smaller."""
    for call in reversed(calls):
        if call.group == name and is_numbered(call):
            if call.seq == seq:
                return call
            if call.seq < seq:
                return None
    return None


@lru_cache(maxsize=512)
def family(op: str) -> str:
    """What kind of collective an operation's name means, whichever of torch's spellings it has; "" where unknown."""
    bare = op.rpartition(":")[2].lower().replace("_", "").replace(" ", "")
    if "barrier" in bare:
        return "barrier"
    return next((kind for spelling, kind in _FAMILIES if spelling in bare), "")


_FAMILIES = (
    ("gradients", "all_reduce"),
    ("buffers", "broadcast"),
    ("buckets", "broadcast"),
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
)


def is_point_to_point(call: Collective) -> bool:
    return call.op.rpartition(":")[2] in ("send", "recv", "isend", "irecv", "recv_any_source", "recvanysource")


def is_same(one: Collective, other: Collective) -> bool:
    """One call, on the board once as it was made and once as the rank is in it, a frame or a moment apart."""
    return (one.group, one.seq, one.op, one.peer) == (other.group, other.seq, other.op, other.peer)


def is_numbered(call: Collective) -> bool:
    """It takes a number of its group: neither a send or receive, nor a monitored_barrier, which is made of such."""
    return not is_point_to_point(call) and call.op != "monitored_barrier"


def _step(entry: StepEntry, after: dict[str, int], *, complete: bool) -> Step:
    counts = {name: count - entry.issued.get(name, 0) for name, count in after.items()}
    return Step(entry.step, entry.epoch, entry.batch, counts, complete)
