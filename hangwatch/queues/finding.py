"""What the queues say: a verdict in the making."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Frame, Stage, Status, Wait

from .departure import Departure
from .model import Call, Queues
from .names import named, ranks
from .readings import Kind
from .stuck import Stuck


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of a rule of the queues. `culprits` are ranks with the user's line, where it is known."""

    cause: str
    certainty: Certainty
    summary: str
    status: Status = Status.HUNG
    stage: Stage = Stage.STEP
    culprits: tuple[tuple[int, Frame | None], ...] = ()
    victims: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    waits: tuple[Wait, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    fix: str = ""
    passing: bool = False  # a job that is well shows the same for a moment
    left_out: Call | None = None  # the call that the culprits did not make, where that is the cause
    times: int = 1  # how many calls they left out there, one after another
    without_way_past: str = ""  # the cause instead, if the source shows no way past that call
    departure: Departure | None = None  # of the culprits from the order of the others, where that is the cause

    @property
    def parted(self) -> bool:
        """The culprits left calls out, added or moved some, or called otherwise from one line, at a place known."""
        return self.departure is not None and (self.departure.kind is not Kind.OTHER or self.departure.at_one_line)


def alone_cause(who: Collection[int]) -> str:
    """What fits best where few ranks made calls alone: programs let rank 0 do so, and others by a value of theirs."""
    return "rank-zero-only-collective" if 0 in who else "rank-local-decision"


def collective(one: Stuck) -> str:
    """The call that is stuck, by name: all_reduce 101 of the default group."""
    if one.call is None:
        return f"collective {one.number} of {one.group.title}"
    return named(one.call, one.number, one.group)


def wait_edges(one: Stuck, awaited: Iterable[int] | None = None) -> tuple[Wait, ...]:
    """The one wait of all ranks that wait alike; of a message one for each end, which makes a call of its own."""
    blamed = tuple(one.awaited if awaited is None else awaited)
    waiting = [rank for rank in one.waiting if rank not in blamed]
    if not waiting:
        return ()
    call = one.calls.get(waiting[0])
    if one.peers:
        return tuple(
            Wait(rank, blamed or _other_end(one, rank), named(own, one.number, one.group), own.where)
            for rank in waiting
            if (own := one.calls.get(rank)) is not None
        )
    what = named(call, one.number, one.group) if call else collective(one)
    return (Wait(waiting[0], blamed, what, call.where if call else None, also=tuple(waiting[1:])),)


def all_waits(stuck: Iterable[Stuck], awaited: Iterable[int] | None = None) -> tuple[Wait, ...]:
    """The waits of several calls."""
    return tuple(edge for each in stuck for edge in wait_edges(each, awaited))


def _other_end(one: Stuck, rank: int) -> tuple[int, ...]:
    return tuple(peer for peer in one.peers if peer != rank)


def victims(path: Iterable[Stuck], blamed: Iterable[int]) -> tuple[int, ...]:
    """All that wait along a chain, without those to blame."""
    return tuple(sorted({rank for each in path for rank in each.waiting} - set(blamed)))


def not_told(queues: Queues, missing: Sequence[int]) -> str:
    """no dump of rank 1, and the one of rank 5 cannot be read: what they did is not known; "" where none is missing."""
    if not missing:
        return ""
    none, unread = split_unread(queues, missing)
    lacking = f"no {queues.record} of {ranks(none)}" if none else ""
    broken = f"{records_of(queues, unread)} cannot be read" if unread else ""
    said = ", and ".join(filter(None, (lacking, broken)))
    return f"{said}: what {words.verb(len(missing), 'it', 'they')} did is not known"


def split_unread(queues: Queues, missing: Iterable[int]) -> tuple[list[int], list[int]]:
    """Of ranks without a record that is used: those that left none, and those whose record cannot be read."""
    missing = sorted(missing)
    return [rank for rank in missing if rank not in queues.unread], [rank for rank in missing if rank in queues.unread]


def of_earlier_runs(queues: Queues) -> tuple[str, ...]:
    """A sentence on records that were left out, if there are any."""
    if not queues.earlier:
        return ()
    are = words.verb(len(queues.earlier), "is of an earlier run, and is", "are of an earlier run, and are")
    return (f"{records_of(queues, queues.earlier)} {are} left out",)


def records_of(queues: Queues, who: Collection[int]) -> str:
    """the dump of rank 1, the dumps of ranks 1 and 6"""
    kind, *more = queues.record.split(" ", 1)  # "line of the watchdog"
    noun = " ".join((words.verb(len(who), kind, f"{kind}s"), *more))
    return f"the {noun} of {ranks(who)}"


def of_clocks(queues: Queues) -> Iterator[str]:
    """The clocks of ranks 8-15 are 5 min ahead of ...: a sentence for each difference of clocks."""
    alike: dict[str, list[int]] = {}
    for rank, clock in queues.clocks.items():
        way = "ahead of" if clock.ahead_ns > 0 else "behind"
        alike.setdefault(f"{words.duration(round(abs(clock.ahead_ns) / 1e9))} {way}", []).append(rank)
    for by, who in alike.items():
        sure = any(queues.clocks[rank].sure for rank in who)  # the ranks of one host have one clock
        theirs = words.verb(len(who), "clock of {} is", "clocks of {} are").format(ranks(who))
        doubt = "" if sure else f", or the {queues.record} is of another run (few calls tell)"
        told = "by when the same calls completed"
        yield f"the {theirs} {by} those of the other ranks, {told}{doubt}: times are corrected"


def without_record(queues: Queues, root: Stuck) -> tuple[str, ...]:
    """A sentence on the members of the group that left no record, if there are any."""
    lacking = [rank for rank in root.group.members if rank not in root.group.lanes]
    missing = [rank for rank in lacking if rank not in queues.ranks and rank not in queues.earlier]
    silent = [rank for rank in lacking if rank in queues.ranks]
    tell = words.verb(len(silent), "does", "do")
    elsewhere = f"{records_of(queues, silent)} {tell} not tell of {root.group.title}" if silent else ""
    return tuple(filter(None, (not_told(queues, missing), elsewhere)))
