"""Calls left out of the order that all ranks kept, shown by the first pair of calls that do not belong together."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import site
from hangwatch.facts.case import Case
from hangwatch.facts.common_order import OutOfOrder, order_kept, out_of_order
from hangwatch.facts.extra_calls import groups
from hangwatch.facts.mismatches import place_of
from hangwatch.facts.skip_paths import evidence_of, skip_path, the_only, ways_past
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def left_the_common_order(case: Case) -> Finding | None:
    """A minority, or one half, came to a later call of the program than the one that was due."""
    found = out_of_order(case)
    return _left_out(case, found) if found is not None and found.elsewhere else None


def _left_out(case: Case, found: OutOfOrder) -> Finding:
    calls = {**dict.fromkeys(found.ranks, found.reached), **dict.fromkeys(found.others, found.left_out[0])}
    text = words.listed([f"{n} calls of {name}" if n > 1 else name for name, n in groups(found.left_out)])
    place = site(found.left_out[0])
    ways = ways_past(case, place) if place is not None else ()
    witnesses = [Witness(Kind.HABIT, order_kept(case, found))]
    if len(found.others) > len(found.ranks):
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks made the call that was due: {case.name(found.others)}"))
    first = case.ranks.get(found.ranks[0])
    when = words.in_step(first.step) if first is not None else ""
    reached = f"{found.reached.op}{words.at(place_of(case, found.ranks[0], calls))}"
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,  # it may have made a later call once more, instead of leaving out those before it
        f"{case.name(found.ranks, capital=True)} left out {text}{when}{skip_path(ways)}, and came to {reached} without"
        f" {words.verb(len(found.left_out), 'it', 'them')}.",
        culprits=tuple(
            view.culprit(the_only(ways) or place_of(case, view.rank, calls)) for view in case.views(found.ranks)
        ),
        victims=found.others,
        step=first.step if first is not None else case.furthest_step(case.ranks),
        evidence=evidence_of(ways),
        witnesses=tuple(witnesses),
        status=case.failed,
        awaited=found.ranks,
    )
