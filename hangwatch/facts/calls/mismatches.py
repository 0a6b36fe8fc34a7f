"""Calls under one number of a group, compared: whether they are the same call, and of different kind or size."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from hangwatch import words
from hangwatch.facts.call_site import Site, by_the_engine, path, recorded_caller, site
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, Culprit, Frame
from hangwatch.proof.needs import FROM_ROOT, TO_ROOT
from hangwatch.ranks.issuers import MAIN, issuer, issuers
from hangwatch.ranks.ledger import CALLS_TOLD, Group, family
from hangwatch.ranks.sides import by_value
from hangwatch.ranks.tensors import dtype_name, elements
from hangwatch.stacks.activity import Within
from hangwatch.stacks.frames import function_of, of_origin, user_frame

# Kinds in which every member must bring the same number of elements.
SAME_SIZE = frozenset({"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather"})
MOST_PAIRED = 64  # calls that may have been paired in silence before the first that differ in kind or size
Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """What a call must share with its partners."""

    kind: str
    dtype: str = ""
    elements: int | None = None
    root: int | None = None

    def __str__(self) -> str:
        size = "" if self.elements is None else f" of {words.plural(self.elements, 'element')}"
        end = "" if self.root is None else f" {'from' if self.kind in FROM_ROOT else 'to'} rank {self.root}"
        return f"{self.kind}{size}{f' ({self.dtype})' if self.dtype else ''}{end}"


def shape(call: Collective) -> Shape:
    """What `call` must share with its partners, as far as it was recorded."""
    kind = family(call.op)
    dtype = dtype_name(call.dtypes[0]) if call.dtypes and kind in SAME_SIZE else ""
    brought = elements(call.sizes) if kind in SAME_SIZE else None
    root = call.peer if kind in (*FROM_ROOT, *TO_ROOT) else None
    return Shape(kind, dtype, brought, root)


class Token(NamedTuple):
    """What tells a call of a rank from its other ones: where it came from, and what it must share with its partners."""

    place: Site
    shape: Shape


def token(call: Collective) -> Token | None:
    """None where the place was not recorded."""
    place = site(call)
    return None if place is None else Token(place, shape(call))


def tokens_before(case: Case, rank: int, call: Collective) -> list[tuple[int | None, Token | None]]:
    """What `rank` called in the group of `call` before that one, in its order, and in which steps."""
    made = (each for each in case.ledger.calls_in(rank, call.group) if each.seq < call.seq)
    return [(case.ledger.step_of(rank, each), token(each)) for each in made]


def _meetings(case: Case) -> Iterator[tuple[Group, int]]:
    """Numbers at which ranks wait, or at which ranks have ended; each once."""
    seen = {}
    for entry in case.blocked.values():
        if entry.group is not None and entry.seq:
            seen[id(entry.group), entry.seq] = entry.group
    for view in case:
        if view.dead or view.raised:
            seen.update(
                {(id(group), group.issued(view.rank) or 0): group for group in case.ledger.groups_of(view.rank)}
            )
    for (_, seq), group in seen.items():
        if seq > 0:
            yield group, seq


def differing(calls: dict[int, Collective]) -> dict[Shape, list[int]]:
    """Ranks by what they called; what is not known of one counts as equal to any."""
    shapes = {rank: shape(call) for rank, call in calls.items()}
    if len(set(shapes.values())) < 2:
        return {}
    kinds = by_value({rank: replace(one, root=None) for rank, one in shapes.items() if one.kind})
    if len({one.kind for one in kinds}) > 1:
        return kinds
    roots = by_value({rank: one for rank, one in shapes.items() if one.root is not None})
    if len({one.root for one in roots}) > 1:
        return roots
    complete = {rank: one for rank, one in shapes.items() if one.elements is not None and one.dtype}
    sizes = by_value({rank: replace(one, root=None) for rank, one in complete.items()})
    return sizes if len(sizes) > 1 else {}


def place_of(case: Case, rank: int, calls: dict[int, Collective]) -> Frame | None:
    """The line of the call of `rank`; else where the rank stands, if that may be it.

    A call that the engine issued has no frames: with a GPU the host may have gone on to other lines since.
    """
    view, call = case.ranks.get(rank), calls[rank]
    if (known := user_frame(call.frames)) is not None or view is None:
        return known
    return None if by_the_engine(call) and Within.BACKWARD not in view.now.within else view.where


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


def all_alike(calls: Iterable[Collective]) -> bool:
    """All of them are like the first one."""
    first, *others = calls
    return all(alike(first, other) for other in others)


def common_call(case: Case, group: Group, seq: int, ranks: Collection[int]) -> Collective | None:
    """The call under that number, where those of all `ranks` are on record and alike."""
    calls = case.ledger.under(group.name, seq, ranks)
    return next(iter(calls.values())) if len(calls) == len(ranks) and all_alike(calls.values()) else None


def culprits_at(case: Case, ranks: Iterable[int], calls: dict[int, Collective]) -> tuple[Culprit, ...]:
    """`ranks` as culprits, each at the line of its call in `calls`."""
    return tuple(view.culprit(place_of(case, view.rank, calls)) for view in case.views(ranks))


@dataclass(frozen=True)
class Mismatch:
    """A number of a group under which members issued different calls."""

    group: Group
    seq: int
    calls: dict[int, Collective]  # by rank


@once
def first_mismatch(case: Case) -> Mismatch | None:
    """Where members of a group were paired under one number with different operations, types or sizes."""
    return next(_mismatches(case), None)


def mispaired_ranks(case: Case) -> frozenset[int]:
    """The ranks with such a call, in any group: in a grid of groups each row may have one of its own."""
    return frozenset(rank for found in _mismatches(case) for rank in found.calls)


def _mismatches(case: Case) -> Iterator[Mismatch]:
    for group, last in _meetings(case):
        for seq in range(_first_open(group, last), last + 1):
            calls = case.ledger.under(group.name, seq, group.members)
            if len(differing(calls)) > 1:
                yield Mismatch(group, seq, calls)


def same_beside(case: Case, found: Mismatch, ranks: Ranks) -> tuple[Mismatch, ...]:
    """The same in groups beside that of `found`, with no common member: there too calls like those of `ranks` stand
    against calls like those of its other members, and no others.
    """
    sides = [next(found.calls[rank] for rank in found.calls if (rank in ranks) is inside) for inside in (True, False)]
    others = (other for other in _mismatches(case) if not found.calls.keys() & other.calls.keys())
    return tuple(
        other for other in others if all(any(alike(call, side) for side in sides) for call in other.calls.values())
    )


def _first_open(group: Group, last: int) -> int:
    """The first number that is not complete on every member: a host that runs ahead waits in a later one."""
    first = min((max(head.completed, 0) for head in group.heads.values()), default=last - 1) + 1
    return max(min(first, last), last - CALLS_TOLD)


def threads_of(case: Case, found: Mismatch) -> tuple[str, ...]:
    """The threads whose calls were paired, if there are two that share the group; else none.

    They share it where one rank has issued from both, and no thread is known as that of one rank alone: the others have
    one that runs the same function, though it may not have called yet.
    """
    threads = {issuer(case.ledger, rank, call) for rank, call in found.calls.items()}
    if len(threads) < 2:
        return ()
    background = {
        (thread, function)
        for rank, call in found.calls.items()
        if (thread := issuer(case.ledger, rank, call)) != MAIN and (function := _function(call.frames)) is not None
    }
    users = [issuers(case.ledger, rank, found.group.name) | _alive(case, rank, background) for rank in found.calls]
    shared = any(threads <= used for used in users)
    common = all(sum(thread in used for used in users) > 1 for thread in threads)
    return tuple(sorted(threads)) if shared and common else ()


def _alive(case: Case, rank: int, background: set[tuple[str, tuple[str, str]]]) -> set[str]:
    """Those of these threads, each with the function that it runs, of which one with that function stands on `rank`.

    Of a rank that an error ended no other thread than the main one is seen: it may have had all of them.
    """
    stacks = case.ranks[rank].evidence.stacks if rank in case.ranks else ()
    functions = {_function(stack.frames) for stack in stacks if not stack.main}
    unseen = bool(stacks) and not functions
    return {thread for thread, function in background if unseen or function in functions}


def _function(frames: tuple[Frame, ...]) -> tuple[str, str] | None:
    """The user's outermost function: what a thread runs."""
    own = of_origin(frames, "user")
    return function_of(own[-1]) if own else None


@once
def mispaired(case: Case) -> Mismatch | None:
    """The first mismatch, unless two threads share its group: then their order is no order of the program."""
    found = first_mismatch(case)
    return None if found is None or threads_of(case, found) else found


def as_they_parted(case: Case, found: Mismatch) -> Mismatch:
    """The first of the calls up to that mismatch that came from different places.

    Those of one kind and size are paired in silence, as those of one turn of a loop with what lies behind it.
    """
    members = found.group.members
    for number in range(found.seq - 1, max(found.seq - MOST_PAIRED, 0), -1):
        calls = case.ledger.under(found.group.name, number, members)
        if len(calls) < len(members) or all_alike(calls.values()):
            return found
        found = Mismatch(found.group, number, calls)
    return found


def both_ways(found: Mismatch) -> tuple[tuple[Ranks, Ranks], ...]:
    """(a side, the other one) by what the ranks called, either way; none where places are unknown, or sides not two."""
    sides: list[list[int]] = []
    for rank, call in found.calls.items():
        side = next((side for side in sides if alike(found.calls[side[0]], call)), None)
        if side is None:
            sides.append([rank])
        else:
            side.append(rank)
    if len(sides) != 2 or not all(recorded_caller(call) for call in found.calls.values()):
        return ()
    one, other = map(tuple, sides)
    return (one, other), (other, one)


def times_followed(case: Case, rank: int, before: Collective, call: Collective) -> int:
    """How often, in the records of `rank`, a call like `call` came right after one like `before`, until `call`."""
    numbers = range(call.seq - 1, max(call.seq - CALLS_TOLD, 1), -1)
    pairs = ([case.ledger.call(rank, call.group, seq - ago) for ago in (1, 0)] for seq in numbers)
    known = ((last, other) for last, other in pairs if last is not None and other is not None)
    return sum(1 for last, other in known if alike(last, before) and alike(other, call))
