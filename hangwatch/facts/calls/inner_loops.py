"""The loops within a step from which calls were made, by the source: also those in which no rank stands any more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from hangwatch.facts.call_site import Path, Site, in_backward, path, site
from hangwatch.facts.calls.queues import assessed
from hangwatch.facts.calls.skip_paths import past_lines
from hangwatch.facts.case import Case, once
from hangwatch.model import Bypass, Frame, LoopFacts


@once
def _known(case: Case) -> dict[Path, LoopFacts]:
    found: dict[Path, LoopFacts] = {}
    for each in case.snapshot.call_sites:
        if each.loop is not None and not _draws(case, each.loop):
            found.setdefault(each.lines, each.loop)
    return found


def _draws(case: Case, loop: LoopFacts) -> bool:
    """A DataLoader is asked for its batches there: that loop is around a step, and not within it."""
    drawn = {view.loader.where for view in case if view.loader is not None and view.loader.where is not None}
    return loop.where.source_line in {where.source_line for where in drawn}


def loop_of(case: Case, lines: Path) -> LoopFacts | None:
    """The innermost loop around the call to which the user's `lines` lead, if it lies within a step."""
    return _known(case).get(lines)


def loop_of_another_turn(case: Case) -> LoopFacts | None:
    """The loop within a step around calls that ranks made once more; None where they did not, or it is not known."""
    queued = assessed(case).found if case.in_trouble else None
    departure = queued.departure if queued is not None else None
    return loop_of(case, path(departure.own.frames)) if departure is not None and departure.again else None


def loop_of_all(case: Case, rank: int, places: Iterable[Site]) -> LoopFacts | None:
    """The one loop around the calls that `rank` made from `places`; those of a backward follow from its forward's."""
    followed = {site(call) for call in case.ledger.calls(rank).values() if in_backward(call)}
    loops = [loop_of(case, place.lines) for place in places if place not in followed]
    first = loops[0] if loops else None
    return (
        first if first is not None and all(each is not None and each.where == first.where for each in loops) else None
    )


def tried_again(case: Case, lines: Path) -> tuple[Bypass, ...]:
    """The clauses that catch an error, after which a loop has another try at the call to which `lines` lead.

    Only an error leads past that call, and a loop around the clause is left where all went well.
    """
    loop, ways = loop_of(case, lines), past_lines(case, lines, times=2)
    if loop is None or any(way.asks for way in ways):
        return ()
    around = zip((loop.where, *loop.outer), (loop.leaves, *loop.outer_leaves), strict=False)
    tries = [where for where, leaves in around if leaves]
    return tuple(way for way in ways if any(_in_it(way.where, at) or _decorated(way, at, lines) for at in tries))


def _decorated(way: Bypass, loop: Frame, lines: Path) -> bool:
    """A decorator's own function has that loop, and calls the one below it from there: `@retry(times=3)`."""
    if not way.text.startswith("@"):
        return False
    return any(
        inner[0] == way.where.file and inner[1] > way.where.line and outer[0] == loop.file and outer[1] > loop.line
        for inner, outer in pairwise(lines)
    )


def _in_it(clause: Frame, loop: Frame) -> bool:
    """The clause stands in that loop, which is around the call: one function has both, the loop first."""
    return clause.scope == loop.scope and loop.line < clause.line


def outer_loop(loop: LoopFacts, where: Frame) -> LoopFacts:
    """That of the loops around `loop`, or itself, which begins at `where`, as far as a report tells of it."""
    if where == loop.where:
        return loop
    depth = loop.outer.index(where)
    leaves = loop.outer_leaves[depth] if depth < len(loop.outer_leaves) else ()
    around = going_out(loop, depth + 1)
    return replace(around, leaves=leaves, skips=(), swallows=None)


def going_out(loop: LoopFacts, levels: int) -> LoopFacts:
    """The loop so many levels around `loop`, with its place and what it goes through; all else is still that one's.

    A report of an older version does not tell what the loops around it go through.
    """
    if not levels:
        return loop
    around = replace(
        loop, where=loop.outer[levels - 1], outer=loop.outer[levels:], outer_leaves=loop.outer_leaves[levels:]
    )
    if levels > len(loop.outer_items):
        return around
    items = loop.outer_items[levels - 1]
    counted = items.startswith("range(") and "len(" not in items
    return replace(around, items=items, counted=counted, outer_items=loop.outer_items[levels:])
