"""Ledgers that differ within a step: who skipped a collective, and who made one that nobody else makes.

Numbers alone cannot tell the two apart: both leave one rank with fewer and one with more. What tells them apart is the
majority, what a rank did in its own earlier steps, and whether the call site in which a rank stands has ever been used.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from ..records import Certainty, Divergence, Frame, Phase, Status, StepName
from ..stacks import Within
from . import words
from .case import Case, RankView, once
from .finding import Finding, Rule
from .loops import dried_up, first_uneven, has_left_loop
from .processes import end_of
from .sites import Site, Sites, site


class Left(StrEnum):
    """How somebody left the common path."""

    SKIPPED = "skipped"  # too few calls
    EXTRA = "extra"  # calls that nobody else makes
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Parting:
    """The first step in which the ranks' ledgers part: who left the path there, and how.

    `sure` is true where a majority of the ranks says so. `call` names the calls in question where they are known.
    """

    divergence: Divergence
    how: Left
    who: tuple[int, ...] = ()
    sure: bool = False
    call: str = ""

    @property
    def step(self) -> StepName:
        return StepName(self.divergence.epoch, self.divergence.batch, self.divergence.step)

    @property
    def when(self) -> str:
        """`in epoch 0, batch 7 (step 7)`, or `before` it where nobody looked at the very step."""
        return f"{'in' if self.divergence.exact else 'some time before'} {words.step(self.step)}"


@once
def parting(case: Case) -> Parting | None:
    """Where the ledgers part for the first time, unless the end of a loop explains it."""
    uneven = first_uneven(case)
    for divergence in case.divergences:
        if uneven is not None and not _before_loop_end(divergence, uneven.epoch, uneven.fewest):
            continue
        if not _left_loop(case, divergence):
            return _judged(case, divergence)
    return None


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
    return bool(last) and len(last) == len(longest) and all(has_left_loop(case, view) for view in last)


def _judged(case: Case, divergence: Divergence) -> Parting:
    counts = Counter(divergence.counts.values())
    (norm, times) = counts.most_common(1)[0]
    short = tuple(sorted(rank for rank, count in divergence.counts.items() if count < norm))
    more = tuple(sorted(rank for rank, count in divergence.counts.items() if count > norm))
    ends = (min(divergence.counts.items(), key=_count), max(divergence.counts.items(), key=_count))
    by_sites, call = Left.UNKNOWN, ""
    if divergence.exact:
        by_sites, call = _by_sites(case, divergence, ends[0][0], ends[1][0])
    if 2 * times > counts.total():
        how = Left.SKIPPED if short else Left.EXTRA
        return Parting(divergence, how, short or more, sure=True, call=call)
    if by_sites is Left.UNKNOWN:
        return _by_habit(divergence)
    count = ends[0][1] if by_sites is Left.SKIPPED else ends[1][1]
    who = tuple(sorted(rank for rank, issued in divergence.counts.items() if issued == count))
    return Parting(divergence, by_sites, who if len(set(counts)) == 2 else (), call=call)


def _count(item: tuple[int, int]) -> int:
    return item[1]


def _by_sites(case: Case, divergence: Divergence, short: int, long: int) -> tuple[Left, str]:
    """What the call sites of that step say: did one leave out what was always called, or one call what never was?"""
    sites = Sites(case)
    theirs = sites.inside(long, divergence.group, divergence.step)
    mine = sites.inside(short, divergence.group, divergence.step)
    if theirs is None or not theirs[0] or not theirs[1]:
        return Left.UNKNOWN, ""
    surplus = theirs[0] - (mine[0] if mine is not None else Counter())
    known = theirs[1] | (mine[1] if mine is not None else set())
    call = _named(surplus) if mine is not None and (mine[0] or not divergence.counts[short]) else ""
    used = [place in known for place in surplus]
    if used and all(used):
        return Left.SKIPPED, call
    return (Left.EXTRA if used and not any(used) else Left.UNKNOWN), call


def _by_habit(divergence: Divergence) -> Parting:
    """What the ranks usually did until then, as the watch has remembered it."""
    if divergence.short and not divergence.more:
        return Parting(divergence, Left.SKIPPED, divergence.short)
    if divergence.more and not divergence.short:
        return Parting(divergence, Left.EXTRA, divergence.more)
    return Parting(divergence, Left.UNKNOWN)


def _named(places: Counter[Site]) -> str:
    """`all_reduce (train.py:60)`, `2 calls of all_reduce (train.py:60)`, or "" for a mixture."""
    if len(places) != 1:
        return ""
    (kind, lines), times = next(iter(places.items()))
    name = f"{kind or 'a collective'} ({words.place(Frame(lines[0][0], lines[0][1], ''))})"
    return name if times == 1 else f"{times} calls of {name}"


# ------------------------------------------------------------------------------------------ cadence of gradients


def gradient_sync_mismatch(case: Case) -> Finding | None:
    """Ranks synchronise their gradients every so many batches, and not the same number of them."""
    first = next(iter(case.divergences), None)
    if first is None or not case.blocked or len({cadence(case, rank) for rank in _representatives(first)}) < 2:
        return None
    cadences = {view.rank: found for view in case if (found := cadence(case, view.rank)) is not None}
    if len(set(cadences.values())) < 2 or len(cadences) < len(case.ranks):
        return None
    counts = Counter(cadences.values())
    usual, times = counts.most_common(1)[0]
    majority = 2 * times > len(cadences)
    odd = [rank for rank, found in cadences.items() if found != usual or not majority]
    by_cadence = {found: sorted(r for r, c in cadences.items() if c == found) for found in sorted(counts)}
    sides = [f"{case.name(ranks)} every {words.plural(found, 'batch')}" for found, ranks in by_cadence.items()]
    return Finding(
        "gradient-sync-mismatch",
        case.certainty() if majority else Certainty.LIKELY,
        f"The ranks synchronise their gradients at different intervals: {words.listed(sides)}.",
        culprits=tuple(case.ranks[rank].culprit() for rank in odd),
        victims=tuple(rank for rank in case.blocked if rank not in odd),
        step=StepName(first.epoch, first.batch, first.step),
        evidence=tuple(
            f"{case.name(ranks)} issued collectives in every {found}{_th(found)} step of the last"
            f" {len(case.ledger.steps(ranks[0]))}"
            for found, ranks in by_cadence.items()
        ),
        awaited=tuple(case.ranks),
    )


def _representatives(divergence: Divergence) -> list[int]:
    """A few ranks of each side."""
    sides: dict[int, list[int]] = {}
    for rank, count in divergence.counts.items():
        sides.setdefault(count, []).append(rank)
    return [rank for ranks in sides.values() for rank in ranks[:4]]


def cadence(case: Case, rank: int) -> int | None:
    """Every how many steps `rank` issues most collectives of its busiest group; None where there is no such rule."""
    steps = [step for step in case.ledger.steps(rank) if step.complete]
    names: Counter[str] = Counter()
    for step in steps:
        names.update(step.counts)
    if not names:
        return None
    name = names.most_common(1)[0][0]
    least = min(step.counts.get(name, 0) for step in steps)
    at = [step.step for step in steps if step.counts.get(name, 0) > least]
    if not at:
        return 1 if len(steps) >= 4 and least > 0 else None
    gaps = Counter(after - before for before, after in pairwise(at))
    if gaps.total() < 2:
        return None
    gap, times = gaps.most_common(1)[0]
    return gap if 5 * times >= 4 * gaps.total() else None


def _th(number: int) -> str:
    return {1: "st", 2: "nd", 3: "rd"}.get(number if number < 20 else number % 10, "th")


# ------------------------------------------------------------------------------------------ alone in a collective


def rank_zero_only(case: Case) -> Finding | None:
    """One rank called a collective that the others never call."""
    found = parting(case)
    if found is not None:
        if found.how is not Left.EXTRA or len(found.who) != 1:
            return None
        return _rank_zero_only(case, case.ranks[found.who[0]], found)
    lone = _alone_now(case)
    return _rank_zero_only(case, lone, None) if lone is not None else None


def _alone_now(case: Case) -> RankView | None:
    """The one rank that waits at a call site that no rank has ever used, in a loop that it has not left."""
    sites, ranks = Sites(case), list(case.blocked)
    uneven = first_uneven(case)
    short = uneven.short if uneven is not None else ()
    crowd = Counter(case.blocked[rank].where for rank in ranks)
    loners = [
        rank
        for rank in ranks
        if crowd[case.blocked[rank].where] == 1
        and rank not in short
        and not sites.regular(rank)
        and not sites.shared(rank, _without(ranks, rank))
    ]
    if len(loners) > 1:
        loners = [rank for rank in loners if guarded(case.ranks[rank])] or _in_loop_alone(case, loners)
    if len(loners) != 1 or has_left_loop(case, case.ranks[loners[0]]):
        return None
    lone = case.ranks[loners[0]]
    others = [case.ranks[rank] for rank in _without(ranks, lone.rank)]
    if any(
        _same_point(case, lone.rank, other.rank) or _new_group_in_circle(case, other.rank, lone.rank)
        for other in others
    ):
        return None  # rather a mismatch, or groups used in different orders
    if not others or any(other.over for other in case if other is not lone) or _have_it_before_them(lone, others):
        return None
    if any(view.rank not in case.blocked for view in case if not view.dead):
        return None  # somebody has yet to come from his own code
    usual = [other for other in others if sites.regular(other.rank) or has_left_loop(case, other)]
    return lone if 2 * len(usual) > len(others) or guarded(lone) else None


def _same_point(case: Case, one: int, other: int) -> bool:
    """Both bring the same data to the same number of the same group, from the same function: one calls it otherwise."""
    mine, theirs = case.blocked[one], case.blocked[other]
    if mine.call is None or theirs.call is None or mine.group is not theirs.group or mine.seq != theirs.seq:
        return False
    functions = [entry.where.function if entry.where is not None else "" for entry in (mine, theirs)]
    return mine.call.sizes == theirs.call.sizes != () and functions[0] == functions[1]


def _new_group_in_circle(case: Case, one: int, other: int) -> bool:
    """They wait in different groups of which both are members, and nobody has used the lone rank's group before."""
    mine, theirs = case.blocked[one].group, case.blocked[other].group
    if mine is None or theirs is None or mine is theirs or other not in mine.members or one not in theirs.members:
        return False
    return theirs.issued(one) == 0 and theirs.issued(other) == 1


def _in_loop_alone(case: Case, ranks: list[int]) -> list[int]:
    """The one of `ranks` that still stands in a loop, if all others have left it after the same step."""
    inside = [rank for rank in ranks if case.ranks[rank].now.in_loop]
    others = [view for view in case if view.rank not in inside]
    same = {view.step.step for view in case}
    return inside if len(same) == 1 and all(has_left_loop(case, view) for view in others) else []


def _without(ranks: list[int], rank: int) -> list[int]:
    return [other for other in ranks if other != rank]


def _have_it_before_them(lone: RankView, others: list[RankView]) -> bool:
    """The others are steps behind, so that they may still come to the lone rank's place."""
    at = lone.step.step
    return at is not None and any(other.step.step is not None and other.step.step < at for other in others)


def guarded(view: RankView) -> bool:
    """It evaluates or saves: what people do on one rank."""
    evaluates = view.phase is Phase.EVAL and Within.BUFFERS in view.now.within
    return evaluates or Within.CHECKPOINT in view.now.within


def _rank_zero_only(case: Case, lone: RankView, found: Parting | None) -> Finding:
    others = tuple(rank for rank in case.blocked if rank != lone.rank)
    inside = found is None or found.divergence.step == lone.step.step
    call = f"{_call_name(case, lone)}{words.at(lone.where)}" if inside else found.call if found is not None else ""
    does = "is alone in" if inside else "called"
    sites = Sites(case)
    evidence = [] if found is None else [counted(case, found)]
    if inside and lone.rank in case.blocked and not sites.shared(lone.rank, list(others)):
        evidence.append(f"no other rank has ever called a collective at {words.place(lone.where)}")
    tail = f"; {case.wait_words(others)} elsewhere" if others else ""
    buffers = Within.BUFFERS in lone.now.within
    where = words.at(case.usual_place(others)) if others else ""
    when = f" {found.when}" if found is not None and not inside else ""
    return Finding(
        "rank-zero-only-collective",
        case.certainty() if found is not None and found.sure else Certainty.LIKELY,
        f"{words.ranks([lone.rank], capital=True)} {does} {call or 'a collective'}{when},"
        f" which the other ranks never call{tail}{where}.",
        fix="evaluate with model.module: the DDP wrapper broadcasts its buffers in forward" if buffers else "",
        culprits=(lone.culprit(),),
        victims=others,
        step=found.step if found is not None else lone.step,
        evidence=tuple(evidence),
        awaited=(lone.rank,),
    )


def _call_name(case: Case, view: RankView) -> str:
    if Within.BUFFERS in view.now.within:
        return "the model's forward, which broadcasts its buffers,"
    blocked = case.blocked.get(view.rank)
    return view.now.call or (blocked.op if blocked is not None else "") or "a collective"


def counted(case: Case, found: Parting) -> str:
    """`in epoch 1, batch 12 (step 212), rank 3 issued 2 and ranks 0-2 issued 3 collectives in group 0`."""
    by_count: dict[int, list[int]] = {}
    for rank, count in sorted(found.divergence.counts.items()):
        by_count.setdefault(count, []).append(rank)
    parts = [f"{case.name(ranks)} issued {count}" for count, ranks in sorted(by_count.items())[:4]]
    when = "in" if found.divergence.exact else "in all steps before"
    return f"{when} {words.step(found.step)}, {words.listed(parts)} collectives in group {found.divergence.group}"


# ------------------------------------------------------------------------------------------ skipped


def skipped_collective(case: Case) -> Finding | None:
    """In one step a rank issued fewer collectives than its peers."""
    found = parting(case)
    if found is None:
        return _skipped_by_site(case)
    if not case.blocked and not case.came_down:
        return None
    if found.how is not Left.SKIPPED or not found.who:
        return _somebody_differs(case, found)
    one = len(found.who) == 1
    what = f"skipped {found.call}" if found.call else f"issued fewer collectives than the others ({_difference(found)})"
    return Finding(
        "skipped-collective",
        case.certainty() if found.sure or found.call else Certainty.LIKELY,
        f"{case.name(found.who, capital=True)} {what} {found.when}; since then"
        f" {'its' if one else 'their'} calls meet the wrong partners.",
        culprits=tuple(case.ranks[rank].culprit() for rank in found.who if rank in case.ranks),
        step=found.step,
        evidence=(counted(case, found), *_now(case.ranks.get(found.who[0]))),
        awaited=found.who,
    )


def _difference(found: Parting) -> str:
    return f"{found.divergence.counts[found.who[0]]} instead of {max(found.divergence.counts.values())}"


def _now(view: RankView | None) -> tuple[str, ...]:
    if view is None or view.where is None:
        return ()
    return (f"rank {view.rank} is now at {words.place(view.where)}, in {words.step(view.step) or 'an unknown step'}",)


def _somebody_differs(case: Case, found: Parting) -> Finding | None:
    """The ledgers part, and nothing says which side left the path: blame nobody."""
    if not case.blocked:
        return None
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"The ranks' collectives part: {counted(case, found)}; which side is wrong cannot be told.",
        victims=tuple(case.blocked),
        step=found.step,
        evidence=(counted(case, found),),
        awaited=tuple(case.ranks),
    )


def _skipped_by_site(case: Case) -> Finding | None:
    """All are in the same step with equal numbers, but some stand in a call that comes after the one of the others."""
    sites = Sites(case)
    places = {rank: place for rank in case.blocked if (place := sites.now(rank)) is not None}
    if len(places) < 2 or len(set(places.values())) != 2 or len({case.ranks[rank].step.step for rank in places}) != 1:
        return None
    order = _in_order(case, sites, places)
    if order is None:
        return None
    skipped, reached = order
    ahead = tuple(sorted(rank for rank, place in places.items() if place == reached))
    first, second = words.place(Frame(*skipped[1][0], "")), words.place(Frame(*reached[1][0], ""))
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{case.name(ahead, capital=True)} skipped {skipped[0] or 'a call'} ({first}) in"
        f" {words.step(case.ranks[ahead[0]].step) or 'this step'} and"
        f" {words.verb(len(ahead), 'is', 'are')} in the next call already ({second}).",
        culprits=tuple(case.ranks[rank].culprit() for rank in ahead),
        step=case.ranks[ahead[0]].step,
        evidence=(f"by the order of all earlier steps, {first} comes before {second} in this one",),
        awaited=ahead,
    )


def _in_order(case: Case, sites: Sites, places: dict[int, Site]) -> tuple[Site, Site] | None:
    """The two sites as (the one that was due, the one that comes after it); None where the past does not say."""
    found = []
    one, other = sorted(set(places.values()))
    for earlier, later in ((one, other), (other, one)):
        there = [rank for rank, place in places.items() if place == later]
        followed = all(_follows(case, rank, earlier, later) for rank in there)
        due = all(sites.due(rank, earlier) for rank in places) and all(map(sites.regular, there))
        if followed or (due and all(sites.precedes(rank, earlier, later) for rank in there)):
            found.append((earlier, later))
    return found[0] if len(found) == 1 else None


def _follows(case: Case, rank: int, earlier: Site, later: Site) -> bool:
    """In the recorded past of `rank`, each call at `later` came right after one at `earlier`."""
    blocked = case.blocked[rank]
    current = (blocked.group.name, blocked.seq) if blocked.group is not None else None
    order = [site(call) for key, call in case.ledger.calls(rank).items() if key != current]
    before = [order[index - 1] for index, place in enumerate(order) if place == later and index > 0]
    return len(before) >= 2 and all(place == earlier for place in before)


def aborted_alone(case: Case) -> Finding | None:
    """A rank was aborted by its backend in a collective that no other rank ever calls."""
    dead = [view for view in case if view.dead and not view.finished and view.main.in_collective and view.where]
    if len(dead) != 1 or len(case.ranks) < 2:
        return None
    view, sites = dead[0], Sites(case)
    mine = (view.where.file, view.where.line) if view.where is not None else ("", 0)
    others = [place for rank in case.ranks for place in sites.before(rank)]
    if not others or any(lines[0] == mine for _, lines in others):
        return None
    call = view.main.call or view.main.op or "a collective"
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,
        f"{words.ranks([view.rank], capital=True)} was alone in {call}{words.at(view.where)}, which no rank had ever"
        f" called before, and was ended by it ({end_of(view.evidence.process)}).",
        culprits=(view.culprit(),),
        victims=tuple(rank for rank in case.ranks if rank != view.rank),
        step=view.step,
        evidence=(
            f"pid {view.pid} of rank {view.rank} is gone: {end_of(view.evidence.process)}",
            f"its last stack is in {call}{words.at(view.where)}",
        ),
        status=Status.FAILED,
    )


GONE: tuple[Rule, ...] = (aborted_alone,)
WITHIN: tuple[Rule, ...] = (dried_up, gradient_sync_mismatch, rank_zero_only, skipped_collective)
