"""Ranks that parted in a package's own code: the same function went on at different lines on them.

A trainer's loop calls its collectives by itself. Where all ranks came the same way into one of its functions and left
it at different lines, with none of the user's code further in, its state decided: a stop, a limit or an interval that
was set on some ranks only.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.batches import first_uneven
from hangwatch.facts.case import Case, once
from hangwatch.facts.mismatches import Mismatch, common_call, differing, mispaired
from hangwatch.model import Frame
from hangwatch.stacks.frames import origin

ALIKE_BEFORE = 2  # calls before the pair that must be the same on all ranks


@dataclass(frozen=True)
class Branch:
    """In one function of a package the fewer ranks `odd` went on at `there`, and the `others` at `here`."""

    odd: tuple[int, ...]
    others: tuple[int, ...]
    there: Frame
    here: Frame
    found: Mismatch


@once
def trainer_branch(case: Case) -> Branch | None:
    """Where the paths to the first pair of unlike calls part, if that is in a package; None where it is elsewhere."""
    found = mispaired(case)
    if found is None or first_uneven(case) is not None:
        return None
    sides = sorted(differing(found.calls).values(), key=len)
    if len(sides) != 2 or len(sides[0]) == len(sides[1]) or not _came_the_same_way(case, found):
        return None
    pairs = {parted(found.calls[one].frames, found.calls[other].frames) for one in sides[0] for other in sides[1]}
    pair = pairs.pop() if len(pairs) == 1 else None
    return Branch(tuple(sides[0]), tuple(sides[1]), *pair, found) if pair is not None else None


def _came_the_same_way(case: Case, found: Mismatch) -> bool:
    """The calls before that pair were the same on all ranks: none was left out or made too often until then."""
    before = range(found.seq - ALIKE_BEFORE, found.seq)
    return all(common_call(case, found.group, seq, found.calls) is not None for seq in before)


def parted(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> tuple[Frame, Frame] | None:
    """The frames, innermost first, of the package's function that two paths left at different lines."""
    mine, theirs = (tuple(frame for frame in reversed(frames) if not frame.native) for frames in (one, other))
    depth = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
    if depth is None:
        return None
    left, right = mine[depth], theirs[depth]
    same = (left.file, left.function) == (right.file, right.function) and origin(left.file) == "package"
    further = [[origin(frame.file) for frame in path[depth + 1 :]] for path in (mine, theirs)]
    inside = all("package" in each and "user" not in each for each in further)
    return (left, right) if same and inside else None
