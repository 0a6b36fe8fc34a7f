"""Ranks that left out calls of a round of calls from one place, such as those for a model's parameters."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.queues import departure_of
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only, ways_past
from hangwatch.facts.case import Case
from hangwatch.facts.differences.out_of_round import out_of_round
from hangwatch.model import Certainty, Frame
from hangwatch.rules.finding import Finding


def left_out_of_a_round(case: Case) -> Finding | None:
    """What a rank calls came, in its rounds before, behind what the other ranks call.

    Where the calls of all ranks tell it by the order of their rounds, that is told instead.
    """
    ahead = out_of_round(case) if case.in_trouble and departure_of(case) is None else None
    if ahead is None:
        return None
    ways = ways_past(case, ahead.due.place)
    (place, due), own = ahead.due, ahead.own
    if place == own.place and due.elements == own.shape.elements and not ways:
        return None  # the root alone differs, and may have been chosen otherwise
    line = Frame(*place.lines[0], "")
    first, instead = f"{due}{words.at(line)}", f"{own.shape}{words.at(Frame(*own.place.lines[0], ''))}"
    calls = first if ahead.missing == 1 else f"{ahead.missing} calls, {first} the first of them"
    one = len(ahead.ranks) == 1
    rounds = words.plural(ahead.rounds, "earlier round")
    names = case.name(ahead.ranks, capital=True)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{names} left out {calls}{skip_path(ways)}, and called {instead} as number {ahead.found.seq} of group"
        f" {ahead.found.group.name}: {'its' if one else 'their'} later calls are mispaired.",
        culprits=case.culprits(ahead.ranks, the_only(ways) or line),
        victims=case.victims(ahead.ranks),
        step=case.ranks[ahead.ranks[0]].step,
        evidence=(
            f"{case.name(ahead.others)} called {first} under that number",
            f"in {rounds} {case.name(ahead.ranks[:1])} called {instead} behind {first}, and never without",
            *evidence_of(ways, sites_of(case).called(ahead.ranks[0], due.kind, place)),
        ),
        status=case.failed_status,
    )
