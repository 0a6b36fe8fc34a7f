"""A run of equal calls that some ranks ended before the others."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.facts.call_site import site
from hangwatch.facts.case import Case
from hangwatch.facts.other_loaders import other_loaders
from hangwatch.facts.runs import WentOn, name_apart, numbers_apart, place_apart, usual_length, went_on
from hangwatch.facts.skip_paths import passed_at, skip_path, the_only, ways_past
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass
from hangwatch.rules.finding import Finding


def made_a_shorter_run(case: Case) -> Finding | None:
    """The fewer ranks made fewer calls of a run than the others, and went on to a later call.

    Of two halves only the length of the earlier runs tells which is right.
    """
    found = went_on(case)
    usual = usual_length(case, found) if found is not None else None
    cut_short = found is not None and usual is not None and found.made < usual
    if found is None or len(found.ranks) > len(found.others) - (not cut_short):
        return None
    witnesses = tuple(_witnesses(case, found, usual, cut_short=cut_short))
    ways = _ways_past_one(case, found)
    return Finding(
        "skipped-collective",
        case.weigh(witnesses),
        f"{case.name(found.ranks, capital=True)} made fewer calls of {name_apart(found.repeated, found.reached)} than"
        f" {case.name(found.others)}{skip_path(ways)}, and went on to {name_apart(found.reached, found.repeated)};"
        f" since then {'its' if len(found.ranks) == 1 else 'their'} calls are mispaired.",
        fix="call it equally often on every rank: as many batches, layers or turns on each, or vote on when to stop",
        culprits=case.culprits(found.ranks, the_only(ways) or place_apart(found.reached, found.repeated)),
        step=case.step_of(found.ranks),
        evidence=(numbers_apart(case, found), *((passed_at(ways, "that call"),) if ways else ())),
        witnesses=witnesses,
        awaited=found.ranks,
    )


def _ways_past_one(case: Case, found: WentOn) -> tuple[Bypass, ...]:
    """The ways past one call of the run in a turn; none where the ranks may have made different numbers of turns."""
    place = site(found.repeated)
    views = case.views((*found.ranks, *found.others))
    drawn = {tuple((each.index, each.epoch, each.drawn) for each in other_loaders(view)) for view in views}
    return ways_past(case, place) if place is not None and len(drawn) == 1 and any(drawn) else ()


def _witnesses(case: Case, found: WentOn, usual: int | None, *, cut_short: bool) -> Iterator[Witness]:
    if len(found.others) > len(found.ranks):
        yield Witness(Kind.MAJORITY, f"most ranks made that call again: {case.name(found.others)}")
    if usual is not None:
        yield Witness(Kind.HABIT, f"each run of that call before had {usual}, on every rank", agrees=cut_short)
