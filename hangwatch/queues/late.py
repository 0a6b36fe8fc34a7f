"""A host that came to a call long after the others: while it was awaited no device was at fault, and no wire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Frame, Status

from .finding import Finding, collective, victims, wait_edges
from .follow import Chain
from .model import Lane, Queues
from .moment import open_s
from .names import at, named, ranks, say
from .stuck import Kind, Stuck

_CAME_LATE = 0.5  # of its timeout, at least, for which a call had been open when the last rank enqueued it
_NS_PER_S = 1e9  # nanoseconds in a second


@dataclass(frozen=True, slots=True)
class Late:
    """The few ranks that enqueued a call `by_s` seconds after all others, and when the records were written.

    `open_s` since the first rank enqueued the call, `whole_s` since the last one did.
    """

    ranks: tuple[int, ...]
    by_s: float
    open_s: float
    whole_s: float
    limit_s: float

    @property
    def gave_up(self) -> bool:
        """Whether the first ranks had waited for as long as torch waits."""
        return self.open_s >= self.limit_s


def latecomers(queues: Queues, one: Stuck) -> Late | None:
    """The few ranks that came to a call so late that it was open for longer without them than with them.

    None where its timeout or the dates of the files are not known, not all have come, or the ranks are live.
    """
    known = sorted((made, rank) for rank, made in one.created.items() if made and rank in one.waiting)
    written = [queues.written[rank] for _, rank in known if rank in queues.written]
    limit_s = queues.timeout_ns / _NS_PER_S
    if one.peers or one.kind not in (Kind.HELD, Kind.WIRE, Kind.QUEUED) or not (limit_s and written) or queues.live:
        return None
    gap, first = max(((late[0] - early[0], late[0]) for early, late in pairwise(known)), default=(0, 0))
    late = tuple(sorted(rank for made, rank in known if made >= first))
    open_ns, whole_ns = max(written) - known[0][0], max(written) - known[-1][0]
    dated = open_s(queues, one) is not None and 0 <= whole_ns < gap
    if not dated or gap / _NS_PER_S < _CAME_LATE * limit_s or 2 * len(late) >= len(known):
        return None
    return Late(late, gap / _NS_PER_S, open_ns / _NS_PER_S, whole_ns / _NS_PER_S, limit_s)


def late_host(queues: Queues, chain: Chain) -> Finding | None:
    """The finding on ranks whose hosts were late until just before the records were written."""
    root = chain.roots[0]
    late = latecomers(queues, root)
    if late is None:
        return None
    many, pauses = len(late.ranks), [_pause(queues, rank, root.order[rank]) for rank in late.ranks]
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{_came(root, late)}, and {words.duration(late.whole_s)} before the records were written:"
        f" {words.verb(many, 'its host was', 'their hosts were')} late, and the others waited for"
        f" {words.verb(many, 'it', 'them')}. Nothing shows that a device or the network is stuck.",
        status=Status.HUNG if late.gave_up or root.expired else Status.WAITING,
        culprits=tuple((rank, pause[1] if pause else None) for rank, pause in zip(late.ranks, pauses, strict=True)),
        victims=victims(chain.path, late.ranks),
        evidence=(*_waited(late), *(pause[0] for pause in pauses if pause)),
        alternatives=_or_its_device(root, late),
        waits=wait_edges(root, late.ranks),
        fix=f"find out what {ranks(late.ranks)} did in that time: its loader, a checkpoint, a compilation, storage; if"
        " so long a wait is usual there, raise the timeout of init_process_group",
        passing=not late.gave_up,
    )


def of_latecomers(queues: Queues, one: Stuck) -> str:
    """What is to be said of them where the call was on its way all the same; "" where none was late."""
    late = latecomers(queues, one)
    limit = words.duration(late.limit_s) if late else ""
    return f"; {_came(one, late, short=True)}, where the timeout is {limit}" if late else ""


def _came(one: Stuck, late: Late, *, short: bool = False) -> str:
    """Rank 5 enqueued all_reduce 103 of the default group 59.9 s after the other ranks"""
    what = "it" if short else f"{collective(one)}{at(one.call)}"
    return f"{ranks(late.ranks, capital=not short)} enqueued {what} {words.duration(late.by_s)} after the other ranks"


def _waited(late: Late) -> tuple[str, ...]:
    """That torch's watchdog ended the wait, where it did."""
    waited, limit = words.duration(late.open_s), words.duration(late.limit_s)
    return (f"the others had waited for {waited}, and torch gives up after {limit}",) if late.gave_up else ()


def _or_its_device(root: Stuck, late: Late) -> tuple[Alternative, ...]:
    if not set(late.ranks) & set(root.awaited):
        return ()
    since = f"in the {words.duration(late.whole_s)} since then {say(late.ranks, 'has', 'have')} not started it"
    return (Alternative("device-stall", Certainty.UNDETERMINED, f"{since}: a kernel before it may still run"),)


def _pause(queues: Queues, rank: int, until: int) -> tuple[str, Frame | None] | None:
    """The longest time in which a rank made no call, up to one of them, and the line of the call before it."""
    made = sorted(_made(queues, rank, until), key=lambda each: each[0])
    pauses = [(later[1] - earlier[1], earlier) for earlier, later in pairwise(made) if earlier[1]]
    if not pauses:
        return None
    longest, (_, _, place, lane, title) = max(pauses, key=lambda each: each[0])
    call = queues.call(lane, place)
    said = f"rank {rank} made no call for {words.duration(longest / _NS_PER_S)} after {title}{at(call)}"
    return said, call.where


def _made(queues: Queues, rank: int, until: int) -> Iterator[tuple[int, int, int, Lane, str]]:
    """The calls of a rank in all groups, up to one of them: their order, time, place, queue and name."""
    for group, lane in queues.lanes_of(rank):
        for place, order in enumerate(lane.order):
            if order <= until:
                name = named(queues.call(lane, place), lane.numbers[place], group)
                yield order, lane.created[place], place, lane, name
