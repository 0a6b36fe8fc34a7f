"""Calls that were paired under one number, although they come from different points of the program.

Such a pair is no disagreement about one call: before it, one side has issued calls that the other has not. The records
show which side that is: it has issued the other side's call since, under a later number.

The pair shows at once where the two calls differ in kind or size. Else a barrier is paired with another barrier, both
sides go on, and the job hangs later, at a pair that is not at fault: from there the call paths lead back to the first
pair of different lines. Two lines of one kind may also be two branches of one call, so such a pair says less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import groupby

from hangwatch import words
from hangwatch.facts.call_site import caller, framework, in_backward, path, same, site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.mismatches import (
    Mismatch,
    alike,
    all_alike,
    both_ways,
    differing,
    first_mismatch,
    threads_of,
)
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, Frame
from hangwatch.queues.readings import due
from hangwatch.ranks.ledger import CALLS_TOLD, Group
from hangwatch.ranks.tensors import elements
from hangwatch.stacks.frames import user_frame

MEMBERS_COMPARED = 16  # of a group, evenly spread, and as many that have ended or wait: number by number


@dataclass(frozen=True)
class ExtraCalls:
    """What one side issued before the call at which the other side stands."""

    ranks: tuple[int, ...]  # that issued the extra calls
    others: tuple[int, ...]
    calls: tuple[Collective, ...]  # the extra ones, of the first of `ranks`; at least the first of them
    paired: Collective  # the call of `others` that the first extra call was paired with
    fits: bool  # the two are of one kind and size: only their lines differ

    def made_before(self, case: Case, ranks: tuple[int, ...]) -> bool:
        """One of `ranks` has made one of the extra calls before, or its record has lost some that may have been."""
        return any(self._made_before(case, rank) for rank in ranks)

    def were_due(self, case: Case) -> bool:
        """On the calls that `others` made last, the first of the extra ones had always followed.

        A call that goes on with a run of such calls was not due: each run ends once.
        """
        calls = case.ledger.calls_in(self.others[0], self.paired.group)
        tokens = [_token(call) for call in calls if call.seq < self.paired.seq]
        found = due(tokens)
        return found is not None and found[0] == _token(self.calls[0]) != tokens[-1]

    def _made_before(self, case: Case, rank: int) -> bool:
        name, until = self.paired.group, self.paired.seq
        before = [call for call in case.ledger.calls_in(rank, name) if call.seq < until]
        lost = bool(before) and until - min(call.seq for call in before) > len(before)  # those of C++ code, on a board
        gradients = any(in_backward(call) for call in self.calls)
        return (lost and gradients) or any(alike(call, each) for call in before for each in self.calls)


@once
def extra_calls(case: Case) -> ExtraCalls | None:
    """What one of two sides issued too much at the first number under which calls differ; None if unclear."""
    found = first_mismatch(case)
    for group in _groups(case, found):
        asked = _compared(case, group, found)
        differs = _first_differing(case, group, asked)
        if differs is None:
            continue
        for seq in dict.fromkeys((_first_apart(case, group, asked, differs), differs)):
            pair = Mismatch(group, seq, case.ledger.under(group.name, seq, group.members))
            if threads_of(case, pair):
                return None  # two threads share the group: their order is no order of the program
            if (extra := _at(case, pair, differs)) is not None:
                return extra
    return None


def _groups(case: Case, found: Mismatch | None) -> list[Group]:
    """The group of the first mismatch, and those of which a member has ended: its calls are still on record."""
    ended = [group for group in case.ledger.groups.values() if any(_has_ended(case, rank) for rank in group.members)]
    return [found.group, *ended] if found is not None else ended


def _first_differing(case: Case, group: Group, asked: list[int]) -> int | None:
    """The first number on record under which calls of these ranks differ in kind or size."""
    numbers = Counter(call.seq for rank in asked for call in case.ledger.calls_in(rank, group.name))
    shared = sorted(seq for seq, times in numbers.items() if times > 1)
    return next((seq for seq in shared if len(differing(case.ledger.under(group.name, seq, asked))) > 1), None)


def _first_apart(case: Case, group: Group, asked: list[int], seq: int) -> int:
    """The first number, without a gap before `seq`, under which calls come from different lines.

    `seq` itself where no common call is on record before it: then it is not known where the ranks diverged.
    """
    ranks = list(case.ledger.under(group.name, seq, asked))
    for first in range(seq, 0, -1):
        before = case.ledger.under(group.name, first - 1, ranks).values()
        if len(before) < len(ranks):
            return seq
        if all_alike(before):
            return first
    return seq


def _at(case: Case, pair: Mismatch, last: int) -> ExtraCalls | None:
    """The extra calls of one side of this pair; `last` is the number under which calls differ in kind or size."""
    fits = pair.seq < last
    for ranks, others in both_ways(pair):
        calls = _until_paired(case, pair, ranks[0], pair.calls[others[0]])
        if calls is None or _is_odd(case, pair, ranks[0], others[0]):
            continue
        if not fits or _shifted(case, pair, last, ranks[0], others[0], len(calls)):
            return ExtraCalls(ranks, others, calls, pair.calls[others[0]], fits)
    return None


def _is_odd(case: Case, pair: Mismatch, rank: int, other: int) -> bool:
    """One call of the program, made otherwise: both come from one site, and all calls behind it agree as they are."""
    mine, theirs = site(pair.calls[rank]), site(pair.calls[other])
    if mine is None or theirs is None or not same(mine, theirs):
        return False
    behind = [case.ledger.under(pair.group.name, seq, (rank, other)) for seq in _both(case, pair, rank, other)]
    return bool(behind) and all(all_alike(calls.values()) for calls in behind)


def _both(case: Case, pair: Mismatch, rank: int, other: int) -> list[int]:
    """The numbers behind that of the pair under which calls of both ranks are on record."""
    one, two = ({call.seq for call in case.ledger.calls_in(each, pair.group.name)} for each in (rank, other))
    return sorted(seq for seq in one & two if seq > pair.seq)


def _shifted(case: Case, pair: Mismatch, last: int, rank: int, other: int, places: int) -> bool:
    """From the pair on, until calls differ, all calls of `other` are those of `rank`, so many places later."""
    for seq in range(pair.seq, last - places + 1):
        mine, theirs = (case.ledger.call(r, pair.group.name, n) for r, n in ((rank, seq + places), (other, seq)))
        if mine is None or theirs is None or not alike(mine, theirs):
            return False
    return True


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


def _has_ended(case: Case, rank: int) -> bool:
    return rank in case.ranks and (case.ranks[rank].dead or case.ranks[rank].over)


def _until_paired(case: Case, found: Mismatch, rank: int, theirs: Collective) -> tuple[Collective, ...] | None:
    """The calls of `rank` until it issued, later, the call that the other side issued under the number in question."""
    calls: list[Collective] = []
    for seq in range(found.seq, found.seq + CALLS_TOLD):
        call = case.ledger.call(rank, found.group.name, seq)
        if call is None:
            return None
        if alike(call, theirs):
            return tuple(calls) if calls else None
        calls.append(call)
    return None


def sentences(case: Case, extra: ExtraCalls) -> tuple[str, ...]:
    """What the records say of it: which calls one side issued, and where the other side's call is in its history."""
    calls = [*groups(case, extra)]
    theirs = _text(case, extra.others[0], extra.paired)
    brought = elements(extra.paired.sizes)
    if brought is not None and any(text == theirs for text, _ in calls):  # one line calls with several sizes
        theirs = f"{theirs} of {words.plural(brought, 'element')}"
    issued = words.listed([f"{times} calls of {text}" if times > 1 else text for text, times in calls])
    first, second = f"{case.name(extra.ranks)} issued {issued}", case.name(extra.others)
    return (f"{first}, and only then {theirs}, which {second} issued as number {extra.paired.seq} already",)


def groups(case: Case, extra: ExtraCalls) -> Iterator[tuple[str, int]]:
    """The extra calls in words, and how many of each came in a row."""
    for text, run in groupby(_text(case, extra.ranks[0], call) for call in extra.calls):
        yield text, len(list(run))


def _token(call: Collective) -> Hashable:
    return (call.op, path(call.frames))


def _text(case: Case, rank: int, call: Collective) -> str:
    found = site(call)
    if found is not None and framework(found) is not None:
        return sites_of(case).called(rank, call.op, found)
    function = caller(call.frames)
    where = user_frame(call.frames) or (Frame(function[0], function[2], function[1]) if function is not None else None)
    return f"{call.op} of backward" if where is None and in_backward(call) else f"{call.op}{words.at(where)}"
