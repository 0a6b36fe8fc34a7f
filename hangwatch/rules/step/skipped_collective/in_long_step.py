"""A rank that left out calls together with the end of its step: that step holds two turns, but not all calls of two.

Without a DataLoader a step ends in optimizer.step(). On an overflow a loop tends to leave out both that and the
reduction of the gradients: then the count of steps falls behind, and one number no longer means the same turn.
What a turn holds is known from the rank's own habit.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import Site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only, ways_past
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, StepName
from hangwatch.ranks.ledger import Step
from hangwatch.ranks.sides import spread
from hangwatch.rules.finding import Finding

MOST_TURNS = 64  # in one step


@dataclass(frozen=True)
class _Overlong:
    """A step of `times` turns, as `whole` (a group) says, of which `group` has too few calls."""

    rank: int
    step: Step
    times: int
    whole: str
    group: str
    usual: int


def left_out_with_its_step(case: Case) -> Finding | None:
    """One rank, for which others wait in a group, has a step of several turns that lacks calls of that very group."""
    if any(view.loader is not None for view in case):
        return None
    needs = [(entry.group.name, entry.need) for entry in case.blocked.values() if entry.group and entry.need]
    awaited = {(rank, name) for name, need in needs for rank in need.absent}
    found = [hit for rank, name in sorted(awaited) if (hit := _overlong(case, rank, name)) is not None]
    if len({hit.rank for hit in found}) != 1:
        return None
    hit, view = found[0], case.ranks[found[0].rank]
    name = StepName(None, None, hit.step.step)
    made, due = hit.step.counts.get(hit.group, 0), hit.times * hit.usual
    turns = words.plural(hit.times, "turn")
    place = _place(case, hit)
    ways = ways_past(case, place, due - made) if place is not None else ()
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"Rank {hit.rank} skipped {_calls(case, hit, place, due - made)} in {words.step(name)}, and the end of that"
        f" step with {'it' if due - made == 1 else 'them'}{skip_path(ways)}; since then its calls are mispaired.",
        culprits=(view.culprit(the_only(ways)),),
        step=name,
        evidence=(
            (
                f"{words.step(name)} of rank {hit.rank} holds {turns} of its loop:"
                f" {hit.step.counts[hit.whole]} collectives in group {hit.whole}, {hit.times} times as many as usual"
            ),
            f"in group {hit.group} it issued {made} in that step, and {turns} take {due}",
            *evidence_of(ways),
        ),
    )


def _place(case: Case, hit: _Overlong) -> Site | None:
    """Where all calls of that group come from; None where they come from several lines."""
    inside = sites_of(case).inside(hit.rank, hit.group, hit.step.step)
    places = list(inside[0]) if inside is not None else []
    return places[0] if len(places) == 1 else None


def _calls(case: Case, hit: _Overlong, place: Site | None, number: int) -> str:
    """`4 calls of all_reduce (train.py:40)`, or `4 collectives of group dp`."""
    if place is None:
        return f"{words.plural(number, 'collective')} of group {hit.group}"
    return sites_of(case).named(hit.rank, place, number)


def _overlong(case: Case, rank: int, group: str) -> _Overlong | None:
    """The first step of `rank` that holds several turns, and too few collectives of `group`."""
    usual = {name: case.ledger.usual(rank, name) or 0 for name in {each.name for each in case.ledger.groups_of(rank)}}
    if not usual.get(group):
        return None
    for step in case.ledger.steps(rank):
        for whole, least in sorted(usual.items()):
            times, rest = divmod(step.counts.get(whole, 0), max(least, 1))
            short = step.counts.get(group, 0) < times * usual[group]
            turns = least and step.complete and not rest and 2 <= times <= MOST_TURNS
            if whole != group and turns and short and not _as_long(case, rank, step, whole):
                return _Overlong(rank, step, times, whole, group, usual[group])
    return None


def _as_long(case: Case, rank: int, step: Step, group: str) -> bool:
    """Most of the others issued as many there in that step: an evaluation, say, and no further turns."""
    others = spread(other for other in case.ranks if other != rank)
    steps = (each for other in others for each in case.ledger.steps(other) if each.step == step.step)
    counts = [each.counts.get(group) for each in steps]
    return 2 * counts.count(step.counts[group]) > len(counts)
