"""The first step in which the ranks' ledgers differ: which ranks left the common path there, and how.

Numbers alone cannot tell a rank that skipped a call from one that made a call too many: both leave one with fewer and
one with more. Three witnesses distinguish the two: what most ranks did in that step, what the ranks in question did in
their own earlier steps, and whether the call sites in question had ever been used before. Each speaks for the one or
for the other; where they disagree, the verdict says so, and where they balance, no rank is blamed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum

from hangwatch import words
from hangwatch.facts.call_site import Path, Site
from hangwatch.facts.calls.call_sites import Sites, sites_of
from hangwatch.facts.calls.in_background import made_up_for, may_come_yet
from hangwatch.facts.calls.skip_paths import only_by_a_check, only_by_an_error, past_by_an_error, ways_past
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import first_uneven, has_left_inner_loop, rejoined, worked_on
from hangwatch.facts.differences.level import between_rounds_of, is_level, may_follow, steps_apart
from hangwatch.facts.differences.rhythms import keep_own_intervals
from hangwatch.facts.differences.several_turns import counted_late, several_turns
from hangwatch.facts.differences.updates import keep_own_paces
from hangwatch.facts.differences.usual_counts import agree, by_habit, by_majority, by_repetition, comes_and_goes, like
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass, Divergence, StepName
from hangwatch.ranks.sides import by_value, spread

MOST = 3  # times as many ranks that made a call as left it out: it is the program's, even if it is new
GROUPS_BESIDE = 64  # that are compared with the first one that differs, at most
CALLS_NAMED = 3  # at most, of those that one side made and the other did not


class Left(StrEnum):
    """How a rank left the common path."""

    SKIPPED = "skipped"  # too few calls
    EXTRA = "extra"  # calls that no other rank makes
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Parting:
    """The first step in which the ranks' ledgers differ: which ranks left the path there, and how.

    `witnesses` say why. `places` are the call sites in question, which some used more often in that step than others;
    `call` names the calls where they come from one place, and `ways` are those past them, by the source. `beside` are
    ranks of other groups that left it likewise in that step, such as the other ranks of a stage.
    """

    divergence: Divergence
    how: Left
    who: tuple[int, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    call: str = ""
    ways: tuple[Bypass, ...] = ()
    places: tuple[Site, ...] = ()
    beside: tuple[int, ...] = ()

    @property
    def all_who(self) -> tuple[int, ...]:
        return tuple(sorted({*self.who, *self.beside}))

    @property
    def lines(self) -> Path:
        """The lines that led to the calls in question; () where these came by several ways."""
        ways = {place.lines for place in self.places}
        return ways.pop() if len(ways) == 1 else ()

    @property
    def step(self) -> StepName:
        return self.divergence.name

    @property
    def when(self) -> str:
        """`in epoch 0, batch 7 (step 7)`, or `before` it where that very step was not looked at."""
        return f"{'in' if self.divergence.exact else 'some time before'} {words.step(self.step)}"


@once
def parting(case: Case) -> Parting | None:
    """The first difference between the ledgers, unless the end of a loop explains it."""
    late: set[int] = set()  # their later steps are other ones than those of the same number elsewhere
    for divergence in case.divergences:
        if _is_explained(case, divergence):
            continue
        if counted_late(case, divergence):
            late.update(divergence.more)
        elif late.isdisjoint(divergence.counts) and not _left_loop(case, divergence):
            return _with_those_beside(case, _judged(case, divergence))
    return None


def _is_explained(case: Case, divergence: Divergence) -> bool:
    """Nothing is missing there, or what is missing may come yet, or belongs to the end of a loop or another rhythm."""
    if rejoined(case, divergence.counts) or is_level(case, divergence) or steps_apart(case):
        return True
    if divergence in between_rounds_of(case):
        return True
    if made_up_for(case, divergence) or may_come_yet(case, divergence) or may_follow(case, divergence):
        return True
    ends = ends_a_loop(case, divergence)
    return ends or keep_own_intervals(case, divergence) or keep_own_paces(case, divergence)


def _with_those_beside(case: Case, found: Parting) -> Parting:
    """`found` with the ranks of other groups of which the same is true: replicas of a mesh have a group each."""
    if not (found.who and found.call):
        return found
    step, members = found.divergence.step, set(found.divergence.members)
    same = [each for each in case.divergences if each.step == step and members.isdisjoint(each.members)]
    own = (each for each in same[:GROUPS_BESIDE] if not (_is_explained(case, each) or counted_late(case, each)))
    judged = (_judged(case, each) for each in own if not _left_loop(case, each))
    alike = [each for each in judged if (each.how, each.call) == (found.how, found.call)]
    return replace(found, beside=tuple(sorted({rank for each in alike for rank in each.who})))


def ends_a_loop(case: Case, divergence: Divergence) -> bool:
    """It happened where ranks had run out of data, or later: what they issued there is not what all issue in a step."""
    uneven = first_uneven(case)
    if uneven is None:
        return False
    fewest = min((worked_on(case.ranks[rank], uneven) for rank in uneven.short), default=uneven.fewest)
    return not _before_loop_end(divergence, uneven.epoch, fewest)


def _before_loop_end(divergence: Divergence, epoch: int, batch: int) -> bool:
    """It happened before the step that the short ranks lacked."""
    if divergence.epoch is None or divergence.batch is None:
        return False
    return (divergence.epoch, divergence.batch) < (epoch, batch - 1)


def _left_loop(case: Case, divergence: Divergence) -> bool:
    """The surplus is the call in which ranks stand now, behind a loop that they have left."""
    most = max(divergence.counts.values())
    longest = [case.ranks[rank] for rank, count in divergence.counts.items() if count == most and rank in case.ranks]
    last = [view for view in longest if view.step.step == divergence.step]
    if not last or len(last) < len(longest) or any(view.now.guard == "rank" for view in last):
        return False  # behind a rank check a rank is in a call of its own, wherever that stands
    return all(has_left_inner_loop(case, view) for view in last)


def two_sides(case: Case, divergence: Divergence) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The ranks that issued fewer and those that issued more; None where there are more than two counts.

    Ranks that are in that step still are one side, however far each has come in it, where all of them have issued more
    than those that are through with it.
    """
    counts, inside = divergence.counts, _still_in(case, divergence)
    levels = sorted(set(counts.values()))
    through = {count for rank, count in counts.items() if rank not in inside}
    more = {count for rank, count in counts.items() if rank in inside}
    if len(levels) != 2 and not (len(through) == 1 and more and min(more) > max(through)):
        return None
    few = tuple(sorted(rank for rank, count in counts.items() if count == levels[0]))
    return few, tuple(sorted(counts.keys() - set(few)))


def _still_in(case: Case, divergence: Divergence) -> set[int]:
    """The ranks that are in that step now: they may yet make the calls that they lack there."""
    return {view.rank for view in case.views(divergence.counts) if view.step.step == divergence.step}


def _judged(case: Case, divergence: Divergence) -> Parting:
    sides = two_sides(case, divergence)
    if sides is None:
        return _of_several_levels(case, divergence)
    few, many = sides
    by_sites, call, ways, places = Left.UNKNOWN, "", tuple[Bypass, ...](), tuple[Site, ...]()
    if divergence.exact:
        by_sites, call, ways = _by_sites(case, divergence, few[0], many[0])
        places = tuple(_surplus(case, divergence, few[0], many[0]))
    majority = by_majority(case, divergence, few, many)
    habit = by_habit(case, divergence, few, many)
    repeated = by_repetition(case, divergence, few, many) if habit is None else None
    place = _by_place(case, divergence, few, by_sites, call) if not several_turns(case, divergence) else None
    halves = majority is None and habit is None
    if place is not None and place.agrees and (repeated or (halves and comes_and_goes(case, divergence, few, places))):
        place = None  # a call that comes now and then is known, whether it was due or not
    told = tuple(witness for witness in (majority, habit, repeated, place) if witness is not None)
    found = Parting(divergence, Left.UNKNOWN, (), told, call, ways, places)
    if told == (majority,) and len(many) < len(few) and not places and _both_usual(case, divergence, few, many):
        return found
    agreeing = tuple(witness for witness in told if witness.agrees)
    if agreeing == (majority,) and len(told) > 1:  # habit and place say one thing: what the many did is new
        nearly_all = len(many) >= MOST * len(few)  # and do together: it is the program's
        if not nearly_all and (checked := _checked(found)):
            return _told(case, replace(found, witnesses=(*told[:2], checked)), 1, few, many)
        return _told(case, replace(found, witnesses=agreeing) if nearly_all else found, int(nearly_all), few, many)
    return _told(case, found, sum(1 if witness.agrees else -1 for witness in told), few, many)


def _both_usual(case: Case, divergence: Divergence, few: tuple[int, ...], many: tuple[int, ...]) -> bool:
    """Most ranks have made now as many as the few and now as many as the many, in such steps that are on record."""
    asked = spread(few if len(few) > len(many) else many)
    steps = like(case, divergence, (step for rank in asked for step in case.ledger.steps(rank)))
    usual = {step.counts.get(divergence.group, 0) for step in steps}
    return {divergence.counts[few[0]], divergence.counts[many[0]]} <= usual


def _told(case: Case, found: Parting, balance: int, few: tuple[int, ...], many: tuple[int, ...]) -> Parting:
    """Which side left the path: the few if more witnesses agree, the many if fewer; none where they balance."""
    undecided = balance == 0 and len(few) <= len(many)  # most ranks at once are not past a call by an error
    by_an_error = undecided and found.places and all(past_by_an_error(case, place.lines) for place in found.places)
    if by_an_error and not any(made_there_too(case, found, few[0])):
        by_source = Witness(Kind.SOURCE, only_by_an_error(found.ways))
        found, balance = replace(found, witnesses=(*found.witnesses, by_source)), 1
    elif balance == 0 and _left_for_its_rank(found):
        by_source = Witness(Kind.SOURCE, "a turn goes on without that call under a condition on the rank alone")
        found, balance = replace(found, witnesses=(*found.witnesses, by_source)), 1
    if balance == 0:
        return found
    doubt = _apart_before(case, found.divergence)
    if balance > 0:
        still = _still_in(case, found.divergence)
        through = tuple(rank for rank in few if rank not in still)
        return replace(found, how=Left.SKIPPED, who=through or few, witnesses=found.witnesses + doubt)
    turned = tuple(replace(witness, agrees=not witness.agrees) for witness in found.witnesses)
    return replace(found, how=Left.EXTRA, who=many, witnesses=turned + doubt)


def _left_for_its_rank(found: Parting) -> bool:
    """A call of earlier steps, which a turn goes on without on some ranks by their number: those with fewer calls."""
    known = any(witness.kind is Kind.PLACE and witness.agrees for witness in found.witnesses)
    own = [way for way in found.ways if way.asks != "alike"]
    return known and bool(own) and all(way.asks == "rank" and way.of_turn for way in own)


def made_there_too(case: Case, found: Parting, rank: int) -> list[int]:
    """How often `rank` called from each of the places in that step: beside some, one more is as likely as one less."""
    mine = sites_of(case).inside(rank, found.divergence.group, found.divergence.step)
    return [mine[0][place] if mine is not None else 0 for place in found.places]


def _checked(found: Parting) -> Witness | None:
    """Only a check that data is there leads past the calls: it is meant to hold always, and did not for the few."""
    if not found.ways or any(way.asks != "check" for way in found.ways):
        return None
    return Witness(Kind.SOURCE, only_by_a_check(found.ways))


def _apart_before(case: Case, divergence: Divergence) -> tuple[Witness, ...]:
    """The ranks came to that batch after different numbers of steps: something before it differs, unseen."""
    name = (divergence.epoch, divergence.batch)
    if None in name:
        return ()
    asked = [rank for ranks in by_value(divergence.counts).values() for rank in spread(ranks)]
    steps = {step.step for rank in asked for step in case.ledger.steps(rank) if (step.epoch, step.batch) == name}
    if len(steps) < 2:
        return ()
    return (Witness(Kind.FACT, "the ranks had made different numbers of steps before it", agrees=False),)


def _of_several_levels(case: Case, divergence: Divergence) -> Parting:
    """Three different counts and more: only a majority can say which one is usual."""
    (norm, times), *_ = Counter(divergence.counts.values()).most_common(1)
    if 2 * times <= len(divergence.counts):
        return Parting(divergence, Left.UNKNOWN)
    usual = tuple(sorted(rank for rank, count in divergence.counts.items() if count == norm))
    short = tuple(sorted(rank for rank, count in divergence.counts.items() if count < norm))
    more = tuple(sorted(rank for rank, count in divergence.counts.items() if count > norm))
    witness = Witness(Kind.MAJORITY, agree(case, divergence, usual))
    return Parting(divergence, Left.SKIPPED if short else Left.EXTRA, short or more, (witness,))


def _by_place(case: Case, divergence: Divergence, few: tuple[int, ...], by_sites: Left, call: str) -> Witness | None:
    if by_sites is Left.UNKNOWN:
        return None
    what = call or "the call in question"
    if by_sites is Left.SKIPPED:
        too = f", by {case.name(few)} too" if all(_made_before(case, divergence, rank) for rank in spread(few)) else ""
        return Witness(Kind.PLACE, f"{what} had been made in earlier steps{too}")
    recorded = "" if _is_whole(case, divergence) else " on record"
    return Witness(Kind.PLACE, f"in no earlier step{recorded} had a rank made {what}, or so many of them", agrees=False)


def _is_whole(case: Case, divergence: Divergence) -> bool:
    """The calls of that group are on record from the first one on."""
    ranks = spread(divergence.counts)
    firsts = (min((call.seq for call in case.ledger.calls_in(rank, divergence.group)), default=1) for rank in ranks)
    return max(firsts, default=1) <= 1


def _made_before(case: Case, divergence: Divergence, rank: int) -> bool:
    """`rank` had issued calls in that group in an earlier step, as far as recorded."""
    found = sites_of(case).inside(rank, divergence.group, divergence.step)
    return found is not None and bool(found[1])


def _by_sites(case: Case, divergence: Divergence, short: int, long: int) -> tuple[Left, str, tuple[Bypass, ...]]:
    """What the call sites of that step say: did one leave out what was always called, or one call what never was?

    Then the calls in question, and the ways past them in the source.
    """
    sites = sites_of(case)
    theirs = sites.inside(long, divergence.group, divergence.step)
    mine = sites.inside(short, divergence.group, divergence.step)
    if theirs is None or not theirs[0]:
        return Left.UNKNOWN, *_by_usual_step(case, divergence, short, long)
    surplus = theirs[0] - (mine[0] if mine is not None else Counter())
    known = theirs[1] | (mine[1] if mine is not None else set())
    call, ways = "", tuple[Bypass, ...]()
    more = divergence.counts[long] - divergence.counts[short]  # DDP's own calls may not be on record, on both alike
    if mine is not None and (mine[0] or not divergence.counts[short] or surplus.total() == more):
        # Where calls of the forward are missing, so are those that only follow from them, in backward.
        own = Counter({place: n for place, n in surplus.items() if not sites.in_backward(long, place)}) or surplus
        ways = _common_ways(case, long, own)
        call = words.listed([sites.named(long, *each) for each in own.items()]) if len(own) <= CALLS_NAMED else ""
    if not theirs[1] or _forgotten(case, divergence, long):
        return Left.UNKNOWN, call, ways  # no earlier call on record says whether this one is new
    if mine is not None and mine[0].keys() - known and not _is_guarded(case, divergence, long, ways):
        return Left.UNKNOWN, call, ways  # a step of a new kind on both sides, such as the first evaluation
    added = [_never_as_many(sites, place, known, theirs[0][place], divergence, long) for place in surplus]
    mine = mine or (Counter(), set())
    often = all(added) and all(_as_often(sites, each, mine[0][each], divergence, short) for each in surplus)
    if any(mine[0][place] for place in surplus) and not often:
        return Left.UNKNOWN, call, ways  # only a habit says how often is usual
    if added and not any(added):
        return Left.SKIPPED, call, ways
    return (Left.EXTRA if added and all(added) else Left.UNKNOWN), call, ways


def _by_usual_step(case: Case, divergence: Divergence, short: int, long: int) -> tuple[str, tuple[Bypass, ...]]:
    """The calls in question and the ways past them, where that step is no longer on record and all others are alike.

    As many calls in that step as in all of these, of which the short rank made none: they are the same ones.
    """
    sites = sites_of(case)
    usual = sites.usual_step(long, divergence.group)
    if usual is None or divergence.counts[short] or usual.total() != divergence.counts[long]:
        return "", ()
    call = words.listed([sites.named(long, *each) for each in usual.items()]) if len(usual) <= CALLS_NAMED else ""
    return call, _common_ways(case, long, usual)


def _forgotten(case: Case, divergence: Divergence, rank: int) -> bool:
    """`rank` called in that group in earlier steps, and none of these calls is on record any more."""
    before = [step for step in case.ledger.complete_steps(rank) if step.step < divergence.step]
    made = sum(step.counts.get(divergence.group, 0) for step in before)
    span = case.ledger.span(rank, divergence.group, divergence.step)
    numbers = range(span[0] - made + 1, span[0] + 1) if span is not None else ()
    return made > 0 and not any(call.seq in numbers for call in case.ledger.calls_in(rank, divergence.group))


def _is_guarded(case: Case, divergence: Divergence, rank: int, ways: tuple[Bypass, ...]) -> bool:
    """The source leads to the surplus calls of `rank` only under a condition on the rank."""
    view = case.ranks.get(rank)
    inside = view is not None and view.step.step == divergence.step and view.now.guard == "rank"
    return inside or any(way.asks == "rank" for way in ways)


def _common_ways(case: Case, rank: int, surplus: Counter[Site]) -> tuple[Bypass, ...]:
    """The ways past all of the calls at once: they were left out together."""
    backward = sites_of(case).in_backward
    each = {ways_past(case, place, 1 if backward(rank, place) else times) for place, times in surplus.items()}
    return each.pop() if len(each) == 1 else ()


def _surplus(case: Case, divergence: Divergence, short: int, long: int) -> Counter[Site]:
    """The places from which `long` called in that step more often than `short`, as far as recorded."""
    sites = sites_of(case)
    theirs, mine = (sites.inside(rank, divergence.group, divergence.step) for rank in (long, short))
    return (theirs[0] if theirs is not None else Counter()) - (mine[0] if mine is not None else Counter())


def _never_as_many(sites: Sites, place: Site, known: set[Site], times: int, divergence: Divergence, rank: int) -> bool:
    """No rank had ever called from `place`, or none so often in one step: a new call, or one that was repeated."""
    before = sites.most_in_a_step(rank, divergence.group, place, divergence.step)
    return place not in known or (before is not None and times > before)


def _as_often(sites: Sites, place: Site, times: int, divergence: Divergence, rank: int) -> bool:
    """In an earlier step `rank` made just as many calls from `place`."""
    return any(n < divergence.step and made.count(place) == times for n, made in sites.by_step(rank).items())


def counted(case: Case, found: Parting) -> str:
    """`in epoch 1, batch 12 (step 212), rank 3 issued 2 and ranks 0-2 issued 3 collectives in group 0`."""
    sides = sorted(by_value(found.divergence.counts).items())
    parts = [f"{case.name(ranks)} issued {count}" for count, ranks in sides[:4]]
    when = "in" if found.divergence.exact else "in all steps before"
    step = found.step
    if _apart_before(case, found.divergence):
        step = replace(step, step=None)  # it has another number on some ranks
    return f"{when} {words.step(step)}, {words.listed(parts)} collectives in group {found.divergence.group}"
