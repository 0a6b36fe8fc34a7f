"""The ways past a call in one turn of the loop over the steps, where the call lies in a loop within that turn."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.call_site import Site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import ways_past
from hangwatch.facts.case import Case
from hangwatch.model import Bypass, Frame
from hangwatch.ranks.sides import apart_at
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import function_of, of_origin


def ways_in_turn(case: Case, place: Site, times: int) -> tuple[Bypass, ...]:
    """The ways past `place` within the innermost loop around it; a loop within one turn is none.

    Past the whole of that one leads what is outside of it, where there is such a way: a way within it leads past one of
    its turns only. It counts as one within the loop of the turn.
    """
    part = in_part_of_turn(case, place)
    ways = ways_past(case, place, 2 if part else times)
    around = tuple(replace(way, inner=True) for way in ways if not way.inner) if part else ()
    return around or tuple(way for way in ways if way.inner or part)


def in_part_of_turn(case: Case, place: Site) -> bool:
    """A rank stands at `place` in a loop, over parameters for example, that lies right in the one of the turns.

    That is the loop over its batches, or the innermost one in which a rank stands that is elsewhere. A helper that is
    called from several lines has a loop of its own in each of these calls: it is no common one.
    """
    sites = sites_of(case)
    here = [view for view in case if view.now.loop is not None and sites.now(view.rank) == place]
    turns = {loop for view in case if view not in here and (loop := _common_loop(view, sites.now(view.rank), place))}
    for view in here:
        around = view.now.loop.outer[:1] if view.now.loop is not None else ()
        data = view.loader.where if view.loader is not None else None
        if any(loop in turns or (data and loop.source_line == data.source_line) for loop in around):
            return True
    return False


def _common_loop(view: RankView, now: Site | None, place: Site) -> Frame | None:
    """The innermost loop in which `view` stands, of those in functions whose call leads to `place` as well."""
    loop = view.now.loop
    if loop is None:
        return None
    if now is None:
        return loop.where
    depth = apart_at(reversed(now.lines), reversed(place.lines))
    depth = min(len(now.lines), len(place.lines)) if depth is None else depth
    inner = of_origin(view.evidence.main_stack, "user")[: max(len(now.lines) - depth - 1, 0)]
    apart = {function_of(frame) for frame in inner}
    return next((each for each in (loop.where, *loop.outer) if function_of(each) not in apart), None)


def has_begun_its_turn(case: Case, view: RankView) -> bool:
    """A step that is counted at an optimizer begins with what is left of the last turn.

    A rank that stands in its first call since then may be in that rest, wherever its line is in the loop.
    """
    step = view.step
    if step.batch is not None or step.step is None:
        return True
    return len(sites_of(case).in_step(view.rank, step.step)) > 1
