"""Where ranks diverged at a condition: some made a call in a step, others did not; the source shows what decides.

The records show that the ranks diverged, the source of the call site shows at which condition. Both are needed: neither
alone distinguishes a decision from a call that was skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.facts.call_site import Site, comes_before, path, site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.inner_loops import loop_of
from hangwatch.facts.calls.last_calls import brought_down, last_call, library_call
from hangwatch.facts.calls.mismatches import Mismatch, both_ways, common_call, first_mismatch, mispaired, times_followed
from hangwatch.facts.calls.skip_paths import ways_past, ways_to
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import first_uneven, has_left_inner_loop
from hangwatch.facts.differences.parted import parted, ways_by
from hangwatch.facts.differences.parting import Left, Parting, parting, two_sides
from hangwatch.facts.differences.parts_of_turn import has_begun_its_turn, ways_in_turn
from hangwatch.model import Bypass, Collective, Frame, StepName
from hangwatch.ranks.sides import odd_of
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import called_by_the_program, is_of_a_module, name_of

EVERY_STEP = 2  # steps on record as a whole, all with the call, that make it a call of every step
_FORWARD = "forward"


@dataclass(frozen=True)
class Disagreement:
    """In `step` the ranks `made` called from `place` and those `without` did not.

    `found` is the first difference between the ledgers. `call` is a record of the call, `name` says it in words. `ways`
    are the ways past it in a turn of the loop, those left out that are the same for all ranks. `alike` are ranks of
    other groups, all of which did as one of the two equally large sides did: `made` too, or not. `new`: no rank had
    ever made that call.
    """

    place: Site
    call: Collective
    name: str
    made: tuple[int, ...]
    without: tuple[int, ...]
    step: StepName
    ways: tuple[Bypass, ...]
    found: Parting | None = None
    alike: tuple[int, ...] = ()
    alike_made: bool = False
    new: bool = False

    @property
    def odd(self) -> tuple[int, ...]:
        """The fewer ranks; of equally many those that made a call which is new to all; else all of them."""
        if self.alike:
            return self.without if self.alike_made else self.made
        odd = odd_of(self.made, self.without)
        new = self.new or (self.found is not None and self.found.how is Left.EXTRA)
        return self.made if new and len(odd) > len(self.made) else odd

    @property
    def in_module(self) -> bool:
        """Every way past the call lies within the forward of a module: what ran there differs, and not the loop."""
        return bool(self.ways) and all(_within_module(way.where, self.call.frames) for way in self.ways)

    @property
    def of_a_module(self) -> bool:
        """What wraps a module made the call, as it ran, and not a line of the program."""
        return self.in_module and not called_by_the_program(self.call.frames)


def _within_module(where: Frame, frames: tuple[Frame, ...]) -> bool:
    """A trainer may lead its whole step through a wrapper's forward: the step's own function is no module's."""
    depth = next((n for n, frame in enumerate(frames) if frame.scope == where.scope), None)
    if depth is None:
        return False
    module = next((n for n, frame in enumerate(frames) if n > depth and is_of_a_module(frame)), depth)
    return any(name_of(frame.function) == _FORWARD for frame in frames[depth:module])


@once
def disagreement(case: Case) -> Disagreement | None:
    """The first call about which ranks disagreed, where it is known and its source could be read."""
    found = parting(case)
    if found is not None:
        return _of_parting(case, found)
    if first_uneven(case) is not None:
        return None  # a rank has left its loop before the others: what it calls behind it is a consequence
    return (
        _of_the_present(case, _standing(case))
        or _of_mispaired(case)
        or _of_parted(case)
        or _against_the_order(case)
        or _of_a_new_call(case)
    )


def of_every_step(case: Case, found: Disagreement) -> bool:
    """As far as recorded, every step before had that call, on both sides: it is due whatever happens."""
    asked = (*found.made[:1], *found.without[:1])
    return all(_always(case, rank, found) for rank in asked)


def _always(case: Case, rank: int, found: Disagreement) -> bool:
    places = sites_of(case).by_step(rank)
    first = min(places, default=0)
    last = found.step.step if found.step.step is not None else max(places, default=0)
    whole = [step.step for step in case.ledger.complete_steps(rank) if first < step.step < last]
    return len(whole) >= EVERY_STEP and all(found.place in places.get(step, ()) for step in whole)


# ------------------------------------------------------------------------------------------ in an earlier step


def _of_parting(case: Case, found: Parting) -> Disagreement | None:
    sides = two_sides(case, found.divergence)
    if sides is None or not found.places or not found.divergence.exact or found.divergence.doubtful:
        return None
    without, made = sides
    more = found.divergence.counts[made[0]] - found.divergence.counts[without[0]]
    each = {place: ways_in_turn(case, place, more) for place in found.places}
    if len(set(each.values())) != 1:
        return None
    place = found.places[0]
    call = _record(case, made[0], place)
    if call is None:
        return None
    name = sites_of(case).named(made[0], place)
    disagreed = Disagreement(place, call, name, made, without, found.step, each[place], found)
    return _with_other_groups(case, disagreed) if len(made) == len(without) else disagreed


def _with_other_groups(case: Case, found: Disagreement) -> Disagreement:
    """What the ranks of other groups did in that step, if all of them called where one of the two sides did."""
    step, sites = found.step.step, sites_of(case)
    others = [rank for rank in case.ranks if rank not in (*found.made, *found.without)]
    if step is None or not others:
        return found
    made, without = (set(sites.in_step(side[0], step)) for side in (found.made, found.without))
    did = {_as_did(set(sites.in_step(rank, step)), found.place, made, without) for rank in others}
    alike = did.pop() if len(did) == 1 else None
    return found if alike is None else replace(found, alike=tuple(others), alike_made=alike)


def _as_did(places: set[Site], place: Site, made: set[Site], without: set[Site]) -> bool | None:
    """Whether these are the calls of a rank that made the one at `place`; None where neither side made such calls.

    The side that made it may stand in it still: its step is not over.
    """
    if place in places:
        return True if made <= places else None
    return False if places and places == without else None


def _record(case: Case, rank: int, place: Site) -> Collective | None:
    """A call of that rank from there, one with its whole path: of older ones only the user's lines are kept."""
    calls = (call for call in case.ledger.calls(rank).values() if site(call) == place)
    return max(calls, key=lambda call: len(call.frames), default=None)


# ------------------------------------------------------------------------------------------ in this very step


@dataclass(frozen=True)
class _Standing:
    """Where a rank stands, or stood at its end."""

    view: RankView
    place: Site
    call: Collective
    name: str


def _standing(case: Case) -> dict[int, _Standing]:
    """Where every rank stands in a call that Python code issued or backward; empty where one stands in none."""
    found: dict[int, _Standing] = {}
    ended = case.any_rank_failed
    if ended and not brought_down(case):
        return {}
    for view in case:
        each = _at_end(case, view) if ended else _now(case, view)
        if each is None:
            return {}
        found[view.rank] = each
    return found


def _now(case: Case, view: RankView) -> _Standing | None:
    entry, place = case.blocked.get(view.rank), sites_of(case).now(view.rank)
    if entry is None or place is None or entry.to_a_peer:
        return None
    call = entry.call or Collective("", 0, entry.op, frames=view.evidence.main_stack)
    return _Standing(view, place, call, sites_of(case).named(view.rank, place))


def _at_end(case: Case, view: RankView) -> _Standing | None:
    last = last_call(case, view)
    if last is None:
        return None
    call = last.call or Collective("", 0, last.name, frames=last.frames)
    library = library_call(last.frames)
    name = f"{library}{words.at(last.where)}" if library else sites_of(case).named(view.rank, last.site)
    return _Standing(view, last.site, call, name)


def _of_the_present(case: Case, standing: dict[int, _Standing]) -> Disagreement | None:
    """Some ranks stand in a call that all the others have gone by in this step."""
    for place in {each.place for each in standing.values()}:
        first = next(each for each in standing.values() if each.place == place)
        here = tuple(sorted(rank for rank, each in standing.items() if _at_one_place(each, first)))
        made = tuple(rank for rank in sorted(standing) if rank in here or _made_in(case, rank, first))
        without = tuple(rank for rank in sorted(standing) if rank not in made)
        ways = ways_in_turn(case, place, 1)
        gone_by = without and all(_gone_by(case, first, standing[rank]) for rank in without)
        if ways and gone_by:
            return Disagreement(place, first.call, first.name, made, without, first.view.step, ways)
    return None


def _at_one_place(one: _Standing, other: _Standing) -> bool:
    """By one line of the user both came to one kind of call in one step: a package makes it at several of its own.

    A function of torch that makes several collectives, such as a checkpoint's, is one call of the user's.
    """
    places = [(each.place.lines, each.view.step) for each in (one, other)]
    kinds = {one.place.kind, other.place.kind}
    inside = {library_call(each.call.frames) for each in (one, other)}
    return one.place == other.place or (
        places[0] == places[1] and (len(kinds) == 1 or (len(inside) == 1 and "" not in inside))
    )


def _made_in(case: Case, rank: int, at: _Standing) -> bool:
    """`rank` has made that call in that step, in another group for example, and has gone on from it.

    Before the first step there is one time for it, and a call from there may be over for this rank.
    """
    step, sites = at.view.step.step, sites_of(case)
    return at.place in (sites.before(rank) if step is None else sites.in_step(rank, step))


def _gone_by(case: Case, mine: _Standing, other: _Standing) -> bool:
    """`other` is in a later step, or in the same one after the place of `mine`, by the order of the source.

    Where both are before their first step, in no loop, the order of the source alone says it. A step that is counted at
    an optimizer in the middle of a turn ends with the calls of the next turn: the order of an earlier step tells that.
    """
    here, there = mine.view.step.step, other.view.step.step
    if here is None and there is None:
        straight = mine.view.now.in_loop is False and other.view.now.in_loop is False
        return straight and comes_before(mine.place.lines, other.place.lines)
    if here is None or there is None or here > there:
        return False
    return there > here or _in_order(case, mine, other)


def _in_order(case: Case, one: _Standing, other: _Standing) -> bool:
    """In a step the place of `one` comes before that of `other`: as in an earlier step that had both, else by the
    source.
    """
    sites = sites_of(case)
    for rank in (one.view.rank, other.view.rank):
        if sites.precedes(rank, one.place, other.place):
            return True
        if sites.precedes(rank, other.place, one.place):
            return False
    return has_begun_its_turn(case, other.view) and comes_before(one.place.lines, other.place.lines)


def _of_mispaired(case: Case) -> Disagreement | None:
    """Equally many calls, but different ones: in a module's forward, some ranks made more of one kind in this step."""
    met, sites = first_mismatch(case), sites_of(case)
    steps = {view.step for view in case.views(met.calls)} if met is not None else set()
    step = next(iter(steps)).step if len(steps) == 1 else None
    if met is None or step is None:
        return None
    inside = {rank: used[0] for rank in met.calls if (used := sites.inside(rank, met.group.name, step)) is not None}
    for place in sorted({place for counts in inside.values() for place in counts}):
        counts = {rank: made[place] for rank, made in inside.items()}
        levels = sorted(set(counts.values()))
        ways = ways_in_turn(case, place, 1)
        if len(levels) != 2 or len(counts) < len(met.calls) or not ways:
            continue
        made, without = (tuple(sorted(rank for rank in counts if counts[rank] == level)) for level in levels[::-1])
        if not all(has_begun_its_turn(case, view) for view in case.views(without)):
            continue
        call = _record(case, made[0], place)
        name = sites.named(made[0], place)
        found = Disagreement(place, call, name, made, without, next(iter(steps)), ways) if call is not None else None
        if found is not None and found.in_module:
            return found
    return None


def _of_parted(case: Case) -> Disagreement | None:
    """Some ranks made a call that the others went by, right after a call that all of them made."""
    found = parted(case)
    place = site(found.call) if found is not None else None
    ways = ways_by(case, found) if found is not None and not found.left else ()
    if found is None or place is None or not ways:
        return None
    name = sites_of(case).named(found.made[0], place)
    step = case.ranks[found.made[0]].step
    new = _is_new(case, place)
    return Disagreement(place, found.call, name, found.made, found.without, step, ways, new=new)


def _against_the_order(case: Case) -> Disagreement | None:
    """Some ranks made a call behind a condition where the others made the one that had always followed there.

    Below a trainer the lines of the user's show no order: a hook and the next step are both called from `fit`. Of two
    halves neither left that order for sure.
    """
    for found, made, without in _mispaired_sides(case):
        before = common_call(case, found.group, found.seq - 1, found.group.members)
        place, ways = site(found.calls[made[0]]), _conditions(case, found, made[0], without[0])
        if before is None or place is None or not ways or len(made) == len(without):
            continue
        if site(found.calls[without[0]]) == place:
            continue  # from one place, they all made that call: its size or type differs
        if times_followed(case, without[0], before, found.calls[without[0]]) >= EVERY_STEP:
            return _of_sides(case, found, made, without, place, ways)
    return None


def _mispaired_sides(case: Case) -> Iterator[tuple[Mismatch, tuple[int, ...], tuple[int, ...]]]:
    """The two sides of calls that were paired under one number by all ranks of a group, either way."""
    found = mispaired(case)
    if found is not None and set(found.calls) == set(found.group.members):
        for made, without in both_ways(found):
            yield found, made, without


def _of_sides(
    case: Case,
    found: Mismatch,
    made: tuple[int, ...],
    without: tuple[int, ...],
    place: Site,
    ways: tuple[Bypass, ...],
    *,
    new: bool = False,
) -> Disagreement:
    name, step = sites_of(case).named(made[0], place), case.ranks[made[0]].step
    return Disagreement(place, found.calls[made[0]], name, made, without, step, ways, new=new)


def _conditions(case: Case, found: Mismatch, made: int, without: int) -> tuple[Bypass, ...]:
    """The ways past the call of `made`; those on counters and settings where there is no other and all ranks are in one
    step.

    Then one of these differs by rank, such as the interval of a log. A counter of turns does so too where a turn may go
    without the call of `without`: it says nothing of what that rank decided. A condition that led `without` to its call
    as well came out alike.
    """
    mine, theirs = found.calls[made], found.calls[without]
    ways = tuple(way for way in ways_to(case, mine) if way.inner and not _led_there_too(case, way, mine, theirs))
    own = tuple(way for way in ways if way.asks != "alike")
    steps, usual = {each.step for each in found.calls.values()}, site(theirs)
    if any(way.counts for way in ways) and usual is not None and ways_past(case, usual):
        return own
    return own or (ways if len(steps) == 1 and None not in steps else ())


def _led_there_too(case: Case, way: Bypass, mine: Collective, other: Collective) -> bool:
    """Behind that condition both went on by one line of its function: they differ further in.

    Not where an inner loop is around both, as over layers: each may have come there in a turn of its own.
    """
    lines = [frame for frame in mine.frames if frame.scope == way.where.scope]
    loop = loop_of(case, path(mine.frames))
    if loop is not None and loop.holds(*way.where.source_line):
        return False
    return len(lines) == 1 and mine.step == other.step and lines[0] in other.frames


def _of_a_new_call(case: Case) -> Disagreement | None:
    """A value led few ranks to a call that is new to all, where the others made one that they had made before."""
    sites = sites_of(case)
    for found, made, without in _mispaired_sides(case):
        place, ways = site(found.calls[made[0]]), _conditions(case, found, made[0], without[0])
        if place is None or len(made) > len(without) or {way.asks for way in ways} != {"value"}:
            continue
        usual = all(site(found.calls[rank]) in sites.before(rank) for rank in without)
        left = any(has_left_inner_loop(case, case.ranks[rank]) for rank in made)
        if _is_new(case, place) and usual and not left:
            return _of_sides(case, found, made, without, place, ways, new=True)
    return None


def _is_new(case: Case, place: Site) -> bool:
    """No rank has called from there before, as far as recorded."""
    return not any(place in sites_of(case).before(rank) for rank in case.ranks)
