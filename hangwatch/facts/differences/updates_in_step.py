"""Optimizer steps that some ranks lack within one step, by the line at which all of them stand."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.call_site import path
from hangwatch.facts.case import Case, once
from hangwatch.model import Condition, Frame, StepName
from hangwatch.ranks.own_steps import steps_end
from hangwatch.ranks.sides import by_value
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import user_frame


@dataclass(frozen=True)
class UpdatesInStep:
    """`without` made `fewer` optimizer steps in that step, and `others` `more`, until all came to `where`.

    `conditions` are those ahead of that line, by the source of the loop, that lead to a backward or an update and may
    come out unlike on the ranks.
    """

    without: tuple[int, ...]
    others: tuple[int, ...]
    fewer: int
    more: int
    step: StepName
    where: Frame
    conditions: tuple[Condition, ...]


@once
def updates_in_step(case: Case) -> UpdatesInStep | None:
    """The ranks that left optimizer steps out on the way to the line at which all stand; None where none did.

    All began that step alike, and one turn of the loop is one step: so the same line is the same place in it.
    """
    views = list(case)
    made = {view.rank: count for view in views if (count := _made_since_its_begin(view)) is not None}
    places = {path(view.evidence.main_stack) or (view.where and view.where.source_line) for view in views}
    sides = sorted(by_value(made).items())
    where = views[0].where if views else None
    if len(made) < case.size or len(sides) != 2 or len(places) != 1 or where is None or not _began_alike(views):
        return None
    if len({_issued(view) for view in views}) == 1:
        return None  # equally many calls: what they left out reduces nothing, or each calls when it is due
    if not all(map(_is_a_turn_its_step, views)) or any(map(_met_an_error, case.views(sides[0][1]))):
        return None  # the turns of an inner loop pass one line again and again; an error says more of itself
    loop = next(view.now.loop for view in views)
    asked = tuple(each for each in loop.updates if each.asks != "alike") if loop is not None else ()
    (fewer, without), (more, others) = sides
    return UpdatesInStep(tuple(without), tuple(others), fewer, more, views[0].step, where, asked)


def _met_an_error(view: RankView) -> bool:
    """In this step, ahead of where it stands: one that came up there is that of its end."""
    error = view.exception
    where = user_frame(error.frames) if error is not None and error.step == view.step.step else None
    return where is not None and where != view.where


def _made_since_its_begin(view: RankView) -> int | None:
    """The optimizer steps that it has made in the step in which it is; None where that is not on record."""
    reading = view.reading
    if reading is None or not reading.steps or steps_end(view):
        return None
    begun, now = reading.steps[-1], reading.progress
    known = begun.step == now.step and begun.optimizer_steps is not None
    return now.optimizer_steps - (begun.optimizer_steps or 0) if known else None


def _issued(view: RankView) -> tuple[tuple[str, int], ...]:
    heads = view.reading.heads if view.reading is not None else ()
    return tuple(sorted((head.name, head.issued) for head in heads))


def _began_alike(views: list[RankView]) -> bool:
    begun = [view.reading.steps[-1] for view in views if view.reading is not None]
    return len({(each.step, each.optimizer_steps, tuple(sorted(each.issued.items()))) for each in begun}) == 1


def _is_a_turn_its_step(view: RankView) -> bool:
    """The innermost loop in which it stands is that over the batches, or the only one."""
    loop, data = view.now.loop, view.loader.where if view.loader is not None else None
    if loop is None:
        return False
    return not loop.outer or (data is not None and data.source_line == loop.where.source_line)
