"""Ranks that parted in a package's own code: the same function went on at different lines on them.

A trainer's loop calls its collectives by itself. Where all ranks came the same way into one of its functions and left
it at different lines, with none of the user's code further in, its state decided: a stop, a limit or an interval that
was set on some ranks only.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.call_site import Path, whole_path
from hangwatch.facts.calls.mismatches import Mismatch, Ranks, common_call, differing, mispaired
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import first_uneven
from hangwatch.facts.differences.parting import parting
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Collective, Frame
from hangwatch.ranks.sides import apart_at, by_value
from hangwatch.stacks.frames import is_of_a_module, origin

ALIKE_BEFORE = 2  # calls before the pair that must be the same on all ranks
LOOKED_BACK = 16  # calls from unlike lines before it


@dataclass(frozen=True)
class Apart:
    """The ranks `odd` made another call than the `others`, from other lines, behind calls that were the same on all.

    `why` tells which side is the odd one.
    """

    odd: tuple[int, ...]
    others: tuple[int, ...]
    found: Mismatch
    why: tuple[Witness, ...]


@dataclass(frozen=True)
class Branch(Apart):
    """In one function of a package the ranks `odd` went on at `there`, the `others` at `here`."""

    there: Frame
    here: Frame


@once
def trainer_branch(case: Case) -> Branch | None:
    """Where the paths to the first pair of unlike calls part, if that is in a package; None where it is elsewhere."""
    sides = apart(case)
    if sides is None:
        return None
    mine, theirs = ({sides.found.calls[rank].frames for rank in side} for side in (sides.odd, sides.others))
    places = {parted(one, other) for one in mine for other in theirs}
    place = places.pop() if len(places) == 1 else None
    return Branch(sides.odd, sides.others, sides.found, sides.why, *place) if place is not None else None


@once
def apart(case: Case) -> Apart | None:
    """The two sides of the first pair of unlike calls; None where no side is the odd one."""
    pair = mispaired(case)
    if pair is None or first_uneven(case) is not None:
        return None
    found = _first_apart(case, pair)
    sides = _sides(case, found)
    if sides is None or not _came_the_same_way(case, found):
        return None
    odd, others, why = sides
    return Apart(odd, others, found, why)


def _first_apart(case: Case, found: Mismatch) -> Mismatch:
    """Of the calls right before the pair the first that came from unlike lines: to a backend they may look alike."""
    for seq in range(found.seq - 1, max(found.seq - 1 - LOOKED_BACK, 0), -1):
        calls = case.ledger.under(found.group.name, seq, found.calls)
        if len(calls) < len(found.calls) or len(_by_path(calls)) < 2:
            break
        found = Mismatch(found.group, seq, calls)
    return found


def _by_path(calls: dict[int, Collective]) -> dict[Path, list[int]]:
    return by_value({rank: whole_path(call.frames) for rank, call in calls.items()})


def _sides(case: Case, found: Mismatch) -> tuple[Ranks, Ranks, tuple[Witness, ...]] | None:
    """The fewer ranks, and the others; of two equal sides the one whose step differs from all of its earlier ones."""
    sides = sorted((tuple(ranks) for ranks in (differing(found.calls) or _by_path(found.calls)).values()), key=len)
    if len(sides) != 2:
        return None
    odd, others = sides
    if len(odd) < len(others):
        return odd, others, (Witness(Kind.MAJORITY, f"most ranks went the same way: {case.name(others)}"),)
    left = parting(case)
    if left is None or left.who not in sides:
        return None
    return left.who, odd if left.who == others else others, left.witnesses


def _came_the_same_way(case: Case, found: Mismatch) -> bool:
    """The calls before that pair were the same on all ranks: none was left out or made too often until then."""
    before = range(found.seq - ALIKE_BEFORE, found.seq)
    return all(common_call(case, found.group, seq, found.calls) is not None for seq in before)


def parted(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> tuple[Frame, Frame] | None:
    """The frames, innermost first, of the package's function that two paths left at different lines."""
    mine, theirs = (tuple(frame for frame in reversed(frames) if not frame.native) for frames in (one, other))
    depth = apart_at(mine, theirs)
    if depth is None:
        return None
    left, right = mine[depth], theirs[depth]
    if any(is_of_a_module(frame) for frame in mine[:depth]):
        return None  # a part of the model decides there by its data, and no trainer
    same = left.scope == right.scope and origin(left.file) == "package"
    further = [[origin(frame.file) for frame in path[depth + 1 :]] for path in (mine, theirs)]
    inside = all("package" in each and "user" not in each for each in further)
    return (left, right) if same and inside else None
