"""Ranks that went on from a run of equal calls, such as the forwards of a validation, while others continued it.

Up to some number the calls of all ranks come from the same lines; from there on they differ, often long before a pair
of calls differs in kind or size. Where both calls have been made before, one of them again and again until then, the
ranks that made the other one have come to the end of that run first. How much they carry may differ from one to
the next, as the lengths and the bytes of `all_gather_object` do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.facts.call_site import by_the_engine, path
from hangwatch.facts.calls.mismatches import alike, all_alike, differing, mispaired
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, Frame
from hangwatch.ranks.ledger import CALLS_TOLD
from hangwatch.ranks.sides import by_value, spread

REPEATED = 2  # equal calls right before the ranks part that make a run


@dataclass(frozen=True)
class WentOn:
    """`ranks` went on to the call `reached` under the number `seq`, the `others` continued the run with `repeated`."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    seq: int
    reached: Collective
    repeated: Collective
    made: int  # calls of the run before they parted; 0 where a turn of the loop makes several


@once
def went_on(case: Case) -> WentOn | None:
    """Which ranks left a run of equal calls first, at the first number under which call paths differ."""
    found = mispaired(case)
    if found is None:
        return None
    ranks, name = list(found.calls), found.group.name
    asked = [rank for side in differing(found.calls).values() for rank in spread(side)]
    if (first := first_apart(case, asked, name, found.seq)) is not None and (
        early := _parted(case, ranks, name, first)
    ):
        return early
    for seq in range(found.seq, max(found.seq - CALLS_TOLD, REPEATED), -1):
        before = case.ledger.under(name, seq - 1, asked)
        if len(before) < len(asked):
            return None
        if all_alike(before.values()):
            return _parted(case, ranks, name, seq)
    return None


def first_apart(case: Case, ranks: list[int], name: str, last: int) -> int | None:
    """The first recorded number with unlike paths, if those before it are alike; later ones may be alike by chance."""
    for seq in range(max(last - CALLS_TOLD, 1), last):
        calls = case.ledger.under(name, seq, ranks)
        if len(calls) == len(ranks) and not all_alike(calls.values()):
            return seq
    return None


def _parted(case: Case, ranks: list[int], name: str, seq: int) -> WentOn | None:
    calls = case.ledger.under(name, seq, ranks)
    past = [call for n in range(seq - 1, 0, -1) if (call := case.ledger.call(ranks[0], name, n)) is not None]
    kinds = by_value({rank: (call.op, call.peer, call.frames, by_the_engine(call)) for rank, call in calls.items()})
    went = {rank for each in kinds.values() if _run(past, calls[each[0]]) >= REPEATED for rank in each}
    again = tuple(rank for rank in calls if rank in went)
    left = tuple(rank for rank in calls if rank not in again)
    if len(calls) < len(ranks) or not again or not left or not all_alike(calls[rank] for rank in left):
        return None
    if not any(alike(calls[left[0]], call) for call in past):
        return None  # a new call, which may be one too many
    return WentOn(left, again, seq, calls[left[0]], calls[again[0]], _run(past, calls[again[0]]))


def _run(past: list[Collective], call: Collective) -> int:
    """How many calls right before it are of its kind and from its place."""
    mine = replace(call, sizes=(), dtypes=())
    return next((n for n, other in enumerate(past) if not alike(mine, replace(other, sizes=(), dtypes=()))), len(past))


def numbers_apart(case: Case, found: WentOn) -> str:
    """Up to which number all ranks made the same calls, and where those of either side are from then on."""
    before, after = (words.place(place_apart(*pair)) for pair in _both_ways(found))
    run = f", the last {found.made} of them at {before}" if found.made else ""
    return (
        f"up to number {found.seq - 1} all made the same calls{run};"
        f" from {found.seq} on those of {case.name(found.ranks)} are at {after}"
    )


def _both_ways(found: WentOn) -> tuple[tuple[Collective, Collective], tuple[Collective, Collective]]:
    return (found.repeated, found.reached), (found.reached, found.repeated)


def name_apart(call: Collective, other: Collective) -> str:
    """`call` in words, with the line of `place_apart`."""
    return f"{call.op}{words.at(place_apart(call, other))}"


def place_apart(call: Collective, other: Collective) -> Frame | None:
    """The line of the way to `call` by which it differs from the way to `other`, the outermost one."""
    mine, theirs = path(call.frames), path(other.frames)
    pairs = zip(reversed(mine), reversed(theirs), strict=False)
    line = next((one for one, two in pairs if one != two), mine[0] if mine else None)
    return next((frame for frame in call.frames if frame.source_line == line), None)
