"""Calls that were paired under one number though they stand at different points of the program.

Such a pair is no disagreement about one call: before it, one side has issued calls that the other has not. The records
show which side that is: it has issued the other side's call since, under a later number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from hangwatch import words
from hangwatch.facts.call_site import BACKWARD, caller, path, recorded_caller
from hangwatch.facts.case import Case, once
from hangwatch.facts.mismatches import Mismatch, differing, first_mismatch, threads_of
from hangwatch.model import Collective, Frame
from hangwatch.ranks.ledger import Group
from hangwatch.stacks.frames import user_frame

MOST_BEHIND = 128  # calls of a group that are searched for the other side's: as many as a rank records of each group
MEMBERS_COMPARED = 16  # of a group, evenly spread, and as many that have ended or wait: number by number


@dataclass(frozen=True)
class ExtraCalls:
    """What one side issued before the call at which the other side stands."""

    ranks: tuple[int, ...]  # that issued the extra calls
    others: tuple[int, ...]
    calls: tuple[Collective, ...]  # the extra ones, of the first of `ranks`; at least the first of them
    paired: Collective  # the call of `others` that the first extra call was paired with

    def made_before(self, case: Case, ranks: tuple[int, ...]) -> bool:
        """One of `ranks` has made one of the extra calls before."""
        return any(
            call.group == self.paired.group
            and call.seq < self.paired.seq
            and any(alike(call, each) for each in self.calls)
            for rank in ranks
            for call in case.ledger.calls(rank).values()
        )


def alike(one: Collective, other: Collective) -> bool:
    """Both are the same call of the program, as far as it was recorded: its shape and where it came from."""
    if len(differing({0: one, 1: other})) > 1:
        return False
    here, there = path(one.frames), path(other.frames)
    shorter = min(len(here), len(there))
    if here[:1] != there[:1] if shorter == 1 else shorter > 1 and here != there:
        return False
    mine, theirs = recorded_caller(one), recorded_caller(other)
    return mine is None or theirs is None or mine == theirs or here[:1] in ((mine[::2],), (theirs[::2],))


@once
def extra_calls(case: Case) -> ExtraCalls | None:
    """What one of two sides issued too much at the first number under which calls differ; None if unclear."""
    found = first_mismatch(case)
    for earliest in _earliest(case, found):
        if threads_of(case, earliest):
            return None  # two threads share the group: their order is no order of the program
        sides = _sides(earliest)
        for ranks, others in _both_ways(sides):
            if (calls := _until_paired(case, earliest, ranks[0], earliest.calls[others[0]])) is not None:
                return ExtraCalls(ranks, others, calls, earliest.calls[others[0]])
    return None


def _earliest(case: Case, found: Mismatch | None) -> Iterator[Mismatch]:
    """The first number on record under which calls differ, in the group in question, or where a member has ended."""
    groups = [group for group in case.ledger.groups.values() if any(_has_ended(case, rank) for rank in group.members)]
    if found is not None:
        groups.insert(0, found.group)
    for group in groups:
        asked = _compared(case, group, found)
        numbers = Counter(seq for rank in asked for name, seq in case.ledger.calls(rank) if name == group.name)
        for seq in sorted(seq for seq, times in numbers.items() if times > 1):
            if len(differing(_calls(case, group, asked, seq))) > 1:
                yield Mismatch(group, seq, _calls(case, group, group.members, seq))
                break


def _compared(case: Case, group: Group, found: Mismatch | None) -> list[int]:
    """Members evenly spread, and a few of those that have ended, that wait, and of each side of a mismatch."""
    ended = [rank for rank in group.members if _has_ended(case, rank)]
    sides = differing(found.calls).values() if found is not None else ()
    odd = {
        *ended[:MEMBERS_COMPARED],
        *list(case.blocked)[:MEMBERS_COMPARED],
        *(rank for each in sides for rank in each[:4]),
    }
    return sorted({*group.members[:: max(len(group.members) // MEMBERS_COMPARED, 1)], *odd} & group.member_set)


def _both_ways(sides: list[tuple[int, ...]] | None) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [] if sides is None else [(sides[0], sides[1]), (sides[1], sides[0])]


def _has_ended(case: Case, rank: int) -> bool:
    return rank in case.ranks and (case.ranks[rank].dead or case.ranks[rank].over)


def _calls(case: Case, group: Group, ranks: Iterable[int], seq: int) -> dict[int, Collective]:
    return {rank: call for rank in ranks if (call := case.ledger.call(rank, group.name, seq)) is not None}


def _sides(found: Mismatch) -> list[tuple[int, ...]] | None:
    """The ranks by what they called; None if not all places are known, or there are not exactly two sides."""
    sides: list[list[int]] = []
    for rank, call in found.calls.items():
        side = next((side for side in sides if alike(found.calls[side[0]], call)), None)
        if side is None:
            sides.append([rank])
        else:
            side.append(rank)
    known = all(recorded_caller(call) for call in found.calls.values())
    return [tuple(ranks) for ranks in sides] if known and len(sides) == 2 else None


def _until_paired(case: Case, found: Mismatch, rank: int, theirs: Collective) -> tuple[Collective, ...] | None:
    """The calls of `rank` until it issued, later, the call that the other side issued under the number in question."""
    calls: list[Collective] = []
    for seq in range(found.seq, found.seq + MOST_BEHIND):
        call = case.ledger.call(rank, found.group.name, seq)
        if call is None:
            return None
        if alike(call, theirs):
            return tuple(calls) if calls else None
        calls.append(call)
    return None


def sentences(case: Case, extra: ExtraCalls) -> tuple[str, ...]:
    """What the records say of it: which calls one side issued, and where the other side's call is in its history."""
    calls = [*groups(extra.calls)]
    issued = words.listed([f"{times} calls of {text}" if times > 1 else text for text, times in calls])
    theirs = _text(extra.paired)
    first, second = f"{case.name(extra.ranks)} issued {issued}", case.name(extra.others)
    return (f"{first}, and only then {theirs}, which {second} issued as number {extra.paired.seq} already",)


def groups(calls: tuple[Collective, ...]) -> Iterator[tuple[str, int]]:
    """Calls in words, and how many of each came in a row."""
    for text, same in groupby(calls, key=_text):
        yield text, len(list(same))


def _text(call: Collective) -> str:
    function = caller(call.frames)
    where = user_frame(call.frames) or (Frame(function[0], function[2], function[1]) if function is not None else None)
    return f"{call.op} of backward" if recorded_caller(call) == BACKWARD else f"{call.op}{words.at(where)}"
