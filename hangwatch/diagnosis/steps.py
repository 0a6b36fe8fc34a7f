"""Ledgers that differ within a step: skipped collectives, and gradients synchronised at different intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from ..ledger import Step
from ..records import Certainty, Divergence, Frame, StepName
from . import words
from .case import Case, RankView
from .finding import Finding, Rule
from .overlong import left_out_with_its_step
from .parting import Left, Parting, counted, parting
from .sites import ASKED, Site, Sites, sites_of
from .ways import by_way_of, evidence_of, the_only, ways_past
from .witness import Kind, Witness

# ------------------------------------------------------------------------------------------ cadence of gradients


def gradient_sync_mismatch(case: Case) -> Finding | None:
    """Ranks synchronise their gradients every so many batches, and not the same number of them."""
    first = next(iter(case.divergences), None)
    if (
        first is None
        or not case.blocked
        or len({cadence(case, rank, first.group) for rank in _representatives(first)}) < 2
    ):
        return None
    members = [rank for rank in first.members if rank in case.ranks]
    cadences = {rank: found for rank in members if (found := cadence(case, rank, first.group)) is not None}
    if len(set(cadences.values())) < 2 or len(cadences) < len(first.members):
        return None
    counts = Counter(cadences.values())
    usual, times = counts.most_common(1)[0]
    majority = 2 * times > len(cadences)
    odd = [rank for rank, found in cadences.items() if found != usual or not majority]
    by_cadence = {found: sorted(r for r, c in cadences.items() if c == found) for found in sorted(counts)}
    witnesses = [Witness(Kind.HABIT, "each rank has kept its rhythm in all steps that are recorded")]
    if majority:
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks keep one rhythm: {case.name(by_cadence[usual])}"))
    sides = [f"{case.name(ranks)} every {words.plural(found, 'batch')}" for found, ranks in by_cadence.items()]
    return Finding(
        "gradient-sync-mismatch",
        case.weigh(witnesses),
        f"The ranks synchronise their gradients at different intervals: {words.listed(sides)}.",
        culprits=tuple(case.ranks[rank].culprit() for rank in odd),
        victims=tuple(rank for rank in case.blocked if rank not in odd),
        step=StepName(first.epoch, first.batch, first.step),
        evidence=tuple(
            f"{case.name(ranks)} issued collectives in every {found}{_th(found)} step of the last"
            f" {len(case.ledger.steps(ranks[0]))}"
            for found, ranks in by_cadence.items()
        ),
        witnesses=tuple(witnesses),
        awaited=tuple(case.ranks),
    )


def _representatives(divergence: Divergence) -> list[int]:
    """A few ranks of each side."""
    sides: dict[int, list[int]] = {}
    for rank, count in divergence.counts.items():
        sides.setdefault(count, []).append(rank)
    return [rank for ranks in sides.values() for rank in ranks[:4]]


def cadence(case: Case, rank: int, group: str) -> int | None:
    """Every how many steps `rank` synchronises its gradients in a group; None where there is no such rule.

    Where calls are recorded, those of backward count; else the steps with more collectives than the least.
    """
    steps = [step for step in case.ledger.steps(rank) if step.complete]
    at = sorted(sites_of(case).synchronised(rank, group, {step.step for step in steps})) or _busy_steps(steps, group)
    gaps = Counter(after - before for before, after in pairwise(at))
    if not gaps:
        return None
    gap, times = gaps.most_common(1)[0]
    if gaps.total() == 1:  # the first turn of the rhythm began with the training; loaders may be one batch ahead
        return gap if steps[0].step == 0 and at[0] + 1 in (gap, gap + 1) else None
    return gap if 5 * times >= 4 * gaps.total() else None


def _busy_steps(steps: Sequence[Step], group: str) -> list[int]:
    """The steps with more collectives of the group than the least; all of them, where they are alike."""
    least = min((step.counts.get(group, 0) for step in steps), default=0)
    busy = [step.step for step in steps if step.counts.get(group, 0) > least]
    return busy or [step.step for step in steps if least > 0]


def _th(number: int) -> str:
    return {1: "st", 2: "nd", 3: "rd"}.get(number if number < 20 else number % 10, "th")


# ------------------------------------------------------------------------------------------ skipped


def skipped_collective(case: Case) -> Finding | None:
    """In one step a rank issued fewer collectives than its peers."""
    found = parting(case)
    if found is None:
        return left_out_with_its_step(case) or _skipped_by_site(case) or _skipped_by_order(case)
    if not case.blocked and not case.came_down:
        return None
    if found.how is not Left.SKIPPED or not found.who:
        return _somebody_differs(case, found)
    one = len(found.who) == 1
    what = f"skipped {found.call}" if found.call else f"issued fewer collectives than {_peers(case, found)}"
    return Finding(
        "skipped-collective",
        case.weigh(found.witnesses),
        f"{case.name(found.who, capital=True)} {what} {found.when}{by_way_of(found.ways)}; since then"
        f" {'its' if one else 'their'} calls meet the wrong partners.",
        culprits=tuple(case.ranks[rank].culprit(the_only(found.ways)) for rank in found.who if rank in case.ranks),
        step=found.step,
        evidence=(counted(case, found), *evidence_of(found.ways), *_now(case.ranks.get(found.who[0]))),
        witnesses=found.witnesses,
        awaited=found.who,
    )


def _peers(case: Case, found: Parting) -> str:
    """`the others (0 instead of 6)`; in a group that not all belong to, its other members by name."""
    counts = found.divergence.counts
    peers = sorted(rank for rank in counts if rank not in found.who)
    named = "the others" if len(counts) >= len(case.ranks) else case.name(peers)
    return f"{named} ({counts[found.who[0]]} instead of {max(counts.values())})"


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
        witnesses=found.witnesses,
        awaited=tuple(case.ranks),
    )


def _skipped_by_site(case: Case) -> Finding | None:
    """All are in the same step with equal numbers, but some stand in a call that comes after the one of the others."""
    sites = sites_of(case)
    places = {rank: place for rank in case.blocked if (place := sites.now(rank)) is not None}
    steps = {case.ranks[rank].step.step for rank in places}
    if len(places) < 2 or len(set(places.values())) != 2 or len(steps) != 1 or None in steps:
        return None  # where nothing counts turns of the loop, a rank at the other call may be a turn ahead
    order = _in_order(case, sites, places)
    if order is None or order[0][1][:1] == order[1][1][:1]:
        return None  # from one line of the user's, as below a trainer's `fit`: which of two calls it is cannot be said
    skipped, reached = order
    ahead = _who_could(case, places, skipped, reached)
    first, second = words.place(Frame(*skipped[1][0], "")), words.place(Frame(*reached[1][0], ""))
    due = [rank for rank, place in places.items() if place == skipped]
    outvoted = 2 * len(due) > len(places) == len(case.ranks)
    behind = due[0]
    ways = ways_past(case, skipped)
    order_kept = f"by the order of all earlier steps, {first} comes before {second} in this one"
    witnesses = [Witness(Kind.HABIT, order_kept)]
    if outvoted:
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks are in the earlier call: {case.name(due)}"))
    return Finding(
        "skipped-collective",
        case.weigh(witnesses),
        f"{case.name(ahead, capital=True)} skipped {sites.named(behind, skipped)} in"
        f" {words.step(case.ranks[ahead[0]].step) or 'this step'}{by_way_of(ways)}, and"
        f" {words.verb(len(ahead), 'is', 'are')} in the next call already ({second}).",
        culprits=tuple(case.ranks[rank].culprit(the_only(ways)) for rank in ahead),
        step=case.ranks[ahead[0]].step,
        evidence=evidence_of(ways),
        witnesses=tuple(witnesses),
        awaited=ahead,
    )


def _who_could(case: Case, places: dict[int, Site], skipped: Site, reached: Site) -> tuple[int, ...]:
    """Those ahead for whom the ranks at the skipped call wait: others may have met there, in a group of their own."""
    ahead = {rank for rank, place in places.items() if place == reached}
    behind = [case.blocked[rank] for rank, place in places.items() if place == skipped]
    absent = {rank for entry in behind if entry.need is not None for rank in entry.need.absent}
    members = {rank for entry in behind if entry.group is not None for rank in entry.group.members}
    return tuple(sorted(ahead & absent or ahead & members or ahead))


def _skipped_by_order(case: Case) -> Finding | None:
    """One rank alone came to its call from another one than ever: it has left out the one between."""
    sites = sites_of(case)
    awaited = {rank for entry in case.blocked.values() if entry.need is not None for rank in entry.need.absent}
    asked = sorted(awaited & case.blocked.keys())[:ASKED]
    found = {rank: jump for rank in asked if (jump := sites.jumped(rank)) is not None}
    if len(found) != 1:
        return None
    (rank, (left_out, here)), view = next(iter(found.items())), case.ranks[next(iter(found))]
    first, second = words.place(Frame(*left_out[1][0], "")), words.place(Frame(*here[1][0], ""))
    when = f" in {words.step(view.step)}" if words.step(view.step) else ""
    ways = ways_past(case, left_out)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"Rank {rank} skipped {sites.named(rank, left_out)}{when}{by_way_of(ways)}, and is in the next call"
        f" already ({second}).",
        culprits=(view.culprit(the_only(ways)),),
        step=view.step,
        evidence=(f"on all ranks, every earlier call at {second} came right after one at {first}", *evidence_of(ways)),
        awaited=(rank,),
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
    """In the earlier steps of `rank`, each call at `later` came right after one at `earlier` in the same step.

    Across the end of a step every call follows every other one: a loop comes around.
    """
    now = case.ranks[rank].step.step
    past = [places for step, places in sites_of(case).by_step(rank).items() if step != now]
    before = [places[i - 1] if i else None for places in past for i, place in enumerate(places) if place == later]
    return len(before) >= 2 and all(place == earlier for place in before)


RULES: tuple[Rule, ...] = (skipped_collective,)
RHYTHM: tuple[Rule, ...] = (gradient_sync_mismatch,)
