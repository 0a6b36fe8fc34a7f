"""Evidence of large jobs, made small for the link: what grows with the square of the world must not travel.

Every rank lists the members of its groups, so a capture of 10,000 ranks would list 10,000 x 10,000. Where a list is
long it is replaced by a reference: `members` is `(-1 - k,)` and stands for `groups[k]`, for no rank is negative.
Beyond `MANY_RANKS` a rank's evidence is also cut to what tells ranks apart: where its threads are, its last calls and
steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from hangwatch.model import Collectives, GroupMembers, RankEvidence, Snapshot, ThreadStack
from hangwatch.wire import members

LONG = 32  # members that are worth a reference
MANY_RANKS = 1024
CALLS, STEPS = 8, 16  # of a rank, in a job of many

T = TypeVar("T")
Map = Callable[[tuple[int, ...]], tuple[int, ...]]


def compacted(snapshot: Snapshot) -> tuple[Snapshot, tuple[GroupMembers, ...]]:
    """The snapshot as it travels, and the groups that it refers to."""
    known: dict[tuple[int, ...], int] = {}

    def refer(ranks: tuple[int, ...]) -> tuple[int, ...]:
        return ranks if len(ranks) < LONG else (-1 - known.setdefault(ranks, len(known)),)

    if (snapshot.job.world_size or len(snapshot.ranks)) > MANY_RANKS:
        snapshot = replace(snapshot, ranks=tuple(_brief(rank) for rank in snapshot.ranks))
    small = _mapped(snapshot, refer)
    return small, tuple(GroupMembers(members.identifier("", ranks), "", members.text(ranks)) for ranks in known)


def expanded(snapshot: Snapshot, groups: tuple[GroupMembers, ...]) -> Snapshot:
    """The snapshot that `compacted` was given, as far as it travelled. Raises ValueError for wrong references."""
    lists = [_parsed(group.members) for group in groups]

    def look_up(ranks: tuple[int, ...]) -> tuple[int, ...]:
        if len(ranks) != 1 or ranks[0] >= 0:
            return ranks
        if -ranks[0] > len(lists):
            raise ValueError(f"there is no group {-1 - ranks[0]}")
        return lists[-1 - ranks[0]]

    return _mapped(snapshot, look_up)


_parsed = functools.lru_cache(maxsize=64)(members.parse)  # one tuple for all nodes that name the group


def _mapped(snapshot: Snapshot, change: Map) -> Snapshot:
    ranks = tuple(_rank(rank, change) for rank in snapshot.ranks)
    return replace(snapshot, ranks=ranks, divergences=_all(snapshot.divergences, change))


def _rank(rank: RankEvidence, change: Map) -> RankEvidence:
    reading, calls = rank.reading, rank.collectives
    heads = _all(calls.heads, change)
    if heads is not calls.heads:
        calls = replace(calls, heads=heads)
    if reading is not None:
        made, own = _all(reading.groups_made, change), _all(reading.heads, change)
        if made is not reading.groups_made or own is not reading.heads:
            reading = replace(reading, groups_made=made, heads=own)
    return replace(rank, reading=reading, collectives=calls)


def _all(items: tuple[T, ...], change: Map) -> tuple[T, ...]:
    """The items with their `members` changed; the very same tuple where nothing is."""
    changed: list[Any] = []
    same = True
    for item in items:
        before = item.members  # type: ignore[attr-defined]
        after = change(before)
        same = same and after is before
        changed.append(item if after is before else replace(item, members=after))  # type: ignore[type-var]
    return items if same else tuple(changed)


def _brief(rank: RankEvidence) -> RankEvidence:
    reading = rank.reading
    if reading is not None:
        calls, left_out = reading.calls[-CALLS:], len(reading.calls[:-CALLS])
        dropped = None if reading.calls_dropped is None else reading.calls_dropped + left_out
        reading = replace(reading, steps=reading.steps[-STEPS:], calls=calls, calls_dropped=dropped)
    collectives = Collectives(
        rank.collectives.heads, _last(rank.collectives), rank.collectives.open_calls, rank.collectives.source
    )
    return replace(
        rank,
        reading=reading,
        collectives=collectives,
        stacks=_telling(rank.stacks),
        earlier_stacks=_telling(rank.earlier_stacks),
        phases=rank.phases[-STEPS:],
    )


def _last(calls: Collectives) -> Any:
    return calls.recent[-CALLS * max(1, len(calls.heads)) :]


def _telling(stacks: tuple[ThreadStack, ...]) -> tuple[ThreadStack, ...]:
    """The main thread, and threads that run or hold the interpreter."""
    return tuple(stack for stack in stacks if stack.main or stack.owns_gil or stack.active)
