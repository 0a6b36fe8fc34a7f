"""A call left out, found by the order of call sites: where sequence numbers are equal, the call paths show it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.call_order import jumped
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only, ways_past
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import had_fewer
from hangwatch.facts.differences.left_out import left_out, witnesses_of
from hangwatch.facts.differences.parts_of_turn import in_part_of_turn, ways_in_turn
from hangwatch.model import Certainty, Frame
from hangwatch.ranks.sides import spread
from hangwatch.rules.finding import Finding
from hangwatch.rules.turns import decides


def skipped_by_site(case: Case) -> Finding | None:
    """Some stand in a call that comes after the one of the others, by the order of call sites."""
    found = left_out(case)
    if found is None or (found.loop is not None and decides(found.loop)):
        return None
    ahead, step = found.ahead, case.ranks[found.ahead[0]].step
    first, second = map(words.place, found.lines)
    ways = ways_in_turn(case, found.skipped, 1)
    witnesses = witnesses_of(case, found)
    skipped = sites_of(case).named(found.due[0], found.skipped)
    by = f" below {first}" if found.skipped.lines[0] == found.reached.lines[0] else ""
    return Finding(
        "skipped-collective",
        Certainty.LIKELY if found.by_epoch else case.weigh(witnesses),  # once is no habit
        f"{case.name(ahead, capital=True)} skipped {skipped}{by} in {words.step(step) or 'this step'}{skip_path(ways)},"
        f" and {words.verb(len(ahead), 'is', 'are')} in the next call already ({second}).",
        culprits=case.culprits(ahead, the_only(ways)),
        step=step,
        evidence=evidence_of(ways, "all calls of that loop" if in_part_of_turn(case, found.skipped) else "that call"),
        witnesses=witnesses,
    )


def skipped_by_order(case: Case) -> Finding | None:
    """One rank alone came to its call from another one than ever: it has left out the one between."""
    sites = sites_of(case)
    awaited = {rank for entry in case.blocked.values() if entry.need is not None for rank in entry.need.absent}
    asked = spread(sorted(awaited & case.blocked.keys()))
    found = {rank: jump for rank in asked if (jump := jumped(case, rank)) is not None}
    if len(found) != 1:
        return None
    (rank, (left_out, here)), view = next(iter(found.items())), case.ranks[next(iter(found))]
    if had_fewer(case, rank):
        return None  # its epoch is over: what follows the loop comes behind another call than within it
    if left_out.lines[:1] == here.lines[:1]:
        return None  # from one line of the user's, as below a trainer's `fit`: which of two calls it is cannot be said
    first, second = words.place(Frame(*left_out.lines[0], "")), words.place(Frame(*here.lines[0], ""))
    when = words.in_step(view.step)
    recorded = "" if sites.remembers(rank) else "as far as recorded, "
    ways = ways_past(case, left_out)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"Rank {rank} skipped {sites.named(rank, left_out)}{when}{skip_path(ways)}, and is in the next call"
        f" already ({second}).",
        culprits=(view.culprit(the_only(ways)),),
        step=view.step,
        evidence=(
            f"{recorded}on rank {rank}, every earlier call at {second} came right after one at {first}",
            *evidence_of(ways),
        ),
    )
