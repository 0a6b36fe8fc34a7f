"""The first calls that ranks made from different places after a history that was alike: which side went by the other.

Calls are mispaired from one number on, and the call before it is one that all members made. So they were at one point
of the program then. Where the source of what led to both calls shows an order, the one that comes first from there is
the call that some ranks made and the others went by; steps need not be counted for that, nor the call be a usual one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

from hangwatch import words
from hangwatch.facts.call_site import Path, comes_before, path, site, whole_path
from hangwatch.facts.calls.call_sites import HABIT, sites_of
from hangwatch.facts.calls.inner_loops import loop_of
from hangwatch.facts.calls.mismatches import Mismatch, as_they_parted, both_ways, common_call, mispaired
from hangwatch.facts.calls.skip_paths import ways_to
from hangwatch.facts.case import Case, once
from hangwatch.model import Bypass, Collective, Frame, LoopFacts
from hangwatch.proof.waits import Blocked
from hangwatch.stacks.frames import function_of, of_origin

Ranks = tuple[int, ...]
LOOKED_AT_GROUPS = 64  # in which ranks wait for others, and that are looked at
ALIKE = 8  # calls before: calls of one kind and size are mispaired in silence, and then not all of them are alike


@dataclass(frozen=True)
class Parted:
    """`made` issued `call`; `without` went on to another call. `before` had come last on all of them.

    `loop` is the loop in which those that made it stand, or stood then. It is `left` where both the call and the one
    before it are made there, and the others went on outside of it: what they went by is the rest of that loop.
    """

    made: Ranks
    without: Ranks
    call: Collective
    before: Collective
    loop: LoopFacts | None
    left: bool


@once
def parted(case: Case) -> Parted | None:
    """Where the calls of a group were first mispaired, if the source shows which of two calls comes first."""
    mismatch = mispaired(case)
    found = as_they_parted(case, mismatch) if mismatch is not None else None
    ways = both_ways(found) if found is not None else ()
    if found is None or not ways or set(found.calls) != set(found.group.members):
        return None
    before = common_call(case, found.group, found.seq - 1, found.group.members)
    if before is None:
        return None
    past = found is not mismatch
    each = (_one_way(case, found.calls, made, without, before, past=past) for made, without in ways)
    known = [one for one in each if one is not None]
    known = [one for one in known if one.left] or ([] if past else known)
    return known[0] if len(known) == 1 and _were_alike(case, found) else None


@once
def left_behind(case: Case) -> Parted | None:
    """The same where ranks wait in a loop for others that are in calls of other groups, outside of it.

    Ranks of several groups that wait at one place, as those of a mesh do, are told together.
    """
    waiting = (entry for entry in case.blocked.values() if entry.need is not None and entry.need.absent)
    needs = {(id(entry.group), entry.seq): entry for entry in waiting}
    each = (_left_by_absent(case, entry) for entry in list(needs.values())[:LOOKED_AT_GROUPS])
    known = [one for one in each if one is not None and one.left]
    if not known:
        return None
    first = known[0]
    same = [one for one in known if path(one.call.frames) == path(first.call.frames)]
    made, without = (tuple(sorted({*chain.from_iterable(ranks)})) for ranks in zip(*map(_sides, same), strict=True))
    return replace(first, made=made, without=without) if len(same) == len(known) else None


def _sides(found: Parted) -> tuple[Ranks, Ranks]:
    return found.made, found.without


def _left_by_absent(case: Case, entry: Blocked) -> Parted | None:
    group, number, call, absent = entry.group, entry.seq, entry.call, entry.need.absent if entry.need else ()
    elsewhere = {rank: case.blocked[rank].call for rank in absent if rank in case.blocked}
    if group is None or not number or call is None or len(elsewhere) < len(absent) or None in elsewhere.values():
        return None
    before = common_call(case, group, number - 1, group.members)
    others = {rank: other for rank, other in elsewhere.items() if other is not None and other.group != group.name}
    if before is None or len(others) < len(absent) or len({path(other.frames) for other in others.values()}) > 1:
        return None
    made = tuple(sorted(group.member_set.difference(absent)))
    return _one_way(case, {**dict.fromkeys(made, call), **others}, made, tuple(absent), before)


def _were_alike(case: Case, found: Mismatch) -> bool:
    """The calls before, too: looked at last, for in a large job that takes the longest."""
    numbers = range(max(found.seq - ALIKE, 1), found.seq - 1)
    return all(common_call(case, found.group, number, found.group.members) is not None for number in numbers)


def _one_way(
    case: Case, calls: dict[int, Collective], made: Ranks, without: Ranks, before: Collective, *, past: bool = False
) -> Parted | None:
    """`made` made the call that was due first, if that is so; with `past` they have gone on since."""
    call, other = calls[made[0]], calls[without[0]]
    loop = loop_of(case, path(call.frames)) if past else case.ranks[made[0]].now.loop
    here, there, last = path(call.frames), path(other.frames), path(before.frames)
    inside = [loop is not None and within(loop, call, each) for each in (here, last, there)]
    left = inside == [True, True, False]
    whole = (whole_path(each.frames) for each in (call, other, before))
    if not left and not _is_due_first(here, there, last) and not _is_due_first(*whole):
        return None
    return Parted(made, without, call, before, loop, left)


def _is_due_first(here: Path, there: Path, last: Path) -> bool:
    """From `last` on, the source comes to `here` before it comes to `there`: in this turn of a loop, or in the next."""
    turns = [_is_ahead(each, last) for each in (here, there)]
    if None in turns:
        return False
    return bool(turns[0]) if turns[0] is not turns[1] else comes_before(here, there)


def _is_ahead(lines: Path, last: Path) -> bool | None:
    """`lines` come behind `last` in one turn; False if only the next turn comes to them, None if no order shows."""
    if comes_before(last, lines):
        return True
    return False if lines == last or comes_before(lines, last) else None


def ended_by_itself(case: Case, found: Parted) -> bool:
    """The loop ended on those that left it with what it goes through: all entered it at one number.

    So it shows no way out of it, nor one past the call in a turn of it, which all had made in a turn before. Ranks that
    have left the loop around it as well did so for another reason, such as an interrupt.
    """
    loop = found.loop
    if loop is None or loop.leaves or loop.exits or loop.skips or loop.swallows is not None:
        return False
    if not all(_is_in(loop.outer[:1], case.ranks[rank].now.loop) for rank in found.without if rank in case.ranks):
        return False
    if any(way.inner for way in ways_to(case, found.call)):
        return False
    turns = _since_it_began(case, found, loop)
    return turns is not None and path(found.call.frames) in turns


def strayed(case: Case, found: Parted) -> tuple[Ranks, str]:
    """The fewer ranks; of two halves the one whose number of turns is unlike that of all steps before, and a sentence.

    Those that left it, and "", where nothing tells.
    """
    place, sites = site(found.call), sites_of(case)
    now = case.ledger.step_of(found.made[0], found.call)
    odd = min(found.without, found.made, key=len)
    if len(found.made) != len(found.without) or place is None or now is None:
        return odd, ""
    sides = {side: sites.by_step(side[0]) for side in (found.made, found.without)}
    earlier = (places for steps in sides.values() for step, places in steps.items() if step < now)
    usual = [count for places in earlier if (count := places.count(place))]
    unlike = [side for side, steps in sides.items() if steps.get(now, []).count(place) not in usual]
    if len(usual) < HABIT or len(set(usual)) > 1 or len(unlike) != 1:
        return odd, ""
    return unlike[0], f"in every earlier step with that call, both sides had made it {words.plural(usual[0], 'time')}"


def _is_in(around: tuple[Frame, ...], loop: LoopFacts | None) -> bool:
    """A rank in `loop` is in the loop `around` that one too."""
    return loop is not None and bool(around) and around[0] in (loop.where, *loop.outer)


def _since_it_began(case: Case, found: Parted, loop: LoopFacts) -> set[Path] | None:
    """The lines of all calls in that invocation of the loop before `found.call`; None where ranks differ in them.

    None too where these calls are of several steps: then the turns of the loop are the steps themselves.
    """
    group, members = found.call.group, (*found.made, *found.without)
    oldest = max(min((call.seq for call in case.ledger.calls_in(rank, group)), default=1) for rank in members)
    turns, first = set[Path](), found.made[0]
    step = case.ledger.step_of(first, found.call)
    for number in range(found.call.seq - 1, oldest - 1, -1):
        made = case.ledger.under(group, number, members)
        inside = [lines for call in made.values() if within(loop, found.call, lines := path(call.frames))]
        if not inside:
            return turns
        if len(inside) < len(members) or case.ledger.step_of(first, made[first]) != step:
            return None
        turns.update(inside)
    return turns if oldest <= 1 else None


def within(loop: LoopFacts, call: Collective, lines: Path) -> bool:
    """`lines` lead through the body of `loop`, in that invocation of its function by which `call` was made."""
    own = path(call.frames)[::-1]
    depth = next((n for n, (file, line) in enumerate(own) if loop.holds(file, line)), None)
    outer = lines[::-1]
    if depth is None or len(outer) <= depth or outer[:depth] != own[:depth]:
        return False
    return loop.holds(*outer[depth])


def ways_by(case: Case, found: Parted) -> tuple[Bypass, ...]:
    """How the others went by the call: what leads past it, and was not answered before the last common call.

    A way past the whole of an inner loop counts only if that common call was made outside of it: else the ranks were
    in the loop, and what ended it differs.
    """
    last = path(found.before.frames)
    entered = found.loop is None or not found.loop.last or within(found.loop, found.call, last)
    ways = (way for way in ways_to(case, found.call) if way.asks != "alike")
    return tuple(way for way in ways if (way.inner or not entered) and not _was_answered(way, found))


def _was_answered(way: Bypass, found: Parted) -> bool:
    """The last common call lies between the way and the call, in the function that holds the way."""
    mine, theirs = (of_origin(call.frames, "user")[::-1] for call in (found.call, found.before))
    for here, there in zip(mine, theirs, strict=False):
        in_it = function_of(here) == function_of(there) == function_of(way.where)
        if in_it and way.where.line < there.line <= here.line and way.where.line < here.line:
            return True
        if here.source_line != there.source_line:
            return False
    return False
