"""Lines of the user's that set what a trainer decides by (`model.Switch`), where ranks parted at such a decision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import first_uneven, runs_below_a_package, worked_on
from hangwatch.facts.differences.parting import parting
from hangwatch.facts.loops.epochs import ended_epochs
from hangwatch.model import Frame, Switch
from hangwatch.ranks.view import RankView
from hangwatch.source.switches import LOG
from hangwatch.stacks.frames import origin

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Switched:
    """`ranks` went the way to which those `switches`, all of one name, lead; the `others` did not.

    `after` says how far those came that left a loop.
    """

    ranks: Ranks
    others: Ranks
    switches: tuple[Switch, ...]
    after: str = ""

    @property
    def the_only(self) -> Frame | None:
        """The user's line that sets it, where there is one."""
        places = {each.where for each in self.switches}
        return places.pop() if len(places) == 1 else None

    @property
    def told(self) -> str:
        """`` `should_stop` (train.py:44, `if loss < 0.1`) ``."""
        first = self.switches[0]
        places = dict.fromkeys(words.place(each.where) for each in self.switches)
        under = f", `{first.condition}`" if self.the_only is not None and first.condition else ""
        return f"`{first.name}` ({words.listed(places)}{under})"


@once
def stopped(case: Case) -> Switched | None:
    """Ranks left a trainer's loop with data left, or after an epoch, and one switch of the user's ends that loop."""
    left, others, after = _left_early(case)
    found = ending(case, left, others)
    if not left or not others or found is None or not runs_below_a_package(case, left):
        return None
    if all(each.asks == "rank" for each in found.switches):
        return None  # no value of a rank's own: it stops by its number
    return replace(found, after=after)


def ending(case: Case, ranks: Ranks, others: Ranks) -> Switched | None:
    """The one switch of the user's that ends a trainer's loop, where `ranks` took another way in it than the others."""
    found = _of_one_name(each for each in _own(case) if each.leaves)
    return Switched(ranks, others, found) if found else None


def _left_early(case: Case) -> tuple[Ranks, Ranks, str]:
    uneven = first_uneven(case)
    if uneven is not None:
        left = uneven.left_with_data
        count = max((worked_on(view, uneven) for view in case.views(left)), default=0)
        others = tuple(rank for rank in uneven.drawn if rank not in uneven.short)
        return left, others, f"after {words.plural(count, 'batch')} of epoch {uneven.epoch}, with data left"
    ended = ended_epochs(case)
    if ended is None or ended.at_one_end or ended.closed is not None:
        return (), (), ""
    return ended.left, ended.others, f"after epoch {ended.epoch}"


@once
def led(case: Case) -> Switched | None:
    """All ranks wait, some in a call to which a package came under a switch of the user's, the others elsewhere.

    Ranks that parted in an earlier step may come there for another reason.
    """
    living = [view for view in case if not (view.dead or view.over)]
    if len(living) < 2 or any(view.rank not in case.blocked for view in living):
        return None
    own = [each for each in _own(case) if each.asks != "rank" and not each.leaves]  # a check of the rank is meant so
    for name in sorted({each.name for each in own}):
        guards = [each for each in own if each.name == name]
        under = tuple(view.rank for view in living if any(_holds(each, view) for each in guards))
        others = tuple(view.rank for view in living if view.rank not in under)
        if under and others and _in_this_step(case, under):
            found = tuple(each for each in guards if any(_holds(each, case.ranks[rank]) for rank in under))
            if _decided(case, found, under, others):
                return Switched(under, others, found)
    return None


def _decided(case: Case, found: Iterable[Switch], under: Ranks, others: Ranks) -> bool:
    """That the ranks under it came there, and nothing that they met there, keeps them from the others."""
    step = case.ranks[under[0]].step.step
    switches = tuple(found)
    by_it = all(_by_the_package(each, case.ranks[rank]) for each in switches for rank in under)
    return by_it and not any(_was_there(case, each, rank, step) for each in switches for rank in others)


def logged(case: Case, frames: tuple[Frame, ...], besides: tuple[Frame, ...]) -> tuple[Switch, ...]:
    """The user's lines that log a value under a condition, where a call from `frames` reduces what was logged.

    A call from the frames `besides` does not: its rank may have logged nothing.
    """
    files, others = ({frame.file for frame in each} for each in (frames, besides))
    found = (each for each in _own(case) if each.name == LOG)
    return tuple({each.where: each for each in found if each.asked.file in files - others}.values())


def _own(case: Case) -> tuple[Switch, ...]:
    """Those whose condition may come out otherwise on another rank."""
    return tuple(each for each in case.snapshot.switches if each.asks != "alike")


def _of_one_name(found: Iterable[Switch]) -> tuple[Switch, ...]:
    switches = tuple(found)
    return switches if len({each.name for each in switches}) == 1 else ()


def _holds(switch: Switch, view: RankView) -> bool:
    """The rank stands in what that line of the package guards."""
    return any(_guards(switch, frame) for frame in view.evidence.main_stack)


def _guards(switch: Switch, frame: Frame) -> bool:
    asked = switch.asked
    return not frame.native and frame.file == asked.file and asked.line < frame.line <= switch.last


def _by_the_package(switch: Switch, view: RankView) -> bool:
    """It stands there in the package's own code: no check of the rank, and no hook of the user's, led it on."""
    inner = next((n for n, frame in enumerate(view.evidence.main_stack) if _guards(switch, frame)), 0)
    own = any(origin(frame.file) == "user" for frame in view.evidence.main_stack[:inner])
    return not own and view.now.guard != "rank"


def _was_there(case: Case, switch: Switch, rank: int, step: int | None) -> bool:
    """It has made a call there in this step, and gone on."""
    view = case.ranks[rank]
    made = (call for call in view.evidence.collectives.recent if step is not None and (call.step or 0) >= step)
    return any(_guards(switch, frame) for call in made for frame in call.frames)


def _in_this_step(case: Case, ranks: Ranks) -> bool:
    first = parting(case)
    return first is None or all(case.ranks[rank].step.step == first.step.step for rank in ranks)
