"""How ranks may have left a loop after fewer turns than the others: what its source shows, for each likely cause."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.calls.skip_paths import past_by_an_error, past_in_a_turn_of
from hangwatch.facts.case import Case
from hangwatch.facts.data.drawn import has_data_left
from hangwatch.facts.differences.caught_errors import all_caught, last_caught
from hangwatch.facts.loops.turns import FewerTurns
from hangwatch.model import Bypass, ExceptionFacts, Frame, LoopFacts
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import user_frame

_BEGINS = re.compile(r"range\([^0-9][^,]*,")  # `range(start, steps)`


@dataclass(frozen=True)
class LikelyWay:
    """How the ranks left the loop, by what its source shows: the cause, the end of its sentence, the lines it names."""

    cause: str
    why: str = ""
    lines: tuple[Frame, ...] = ()
    not_causes: tuple[tuple[str, str], ...] = ()  # what speaks against its look-alike

    @property
    def the_only(self) -> Frame | None:
        return self.lines[0] if len(self.lines) == 1 else None


def likely_way(case: Case, short: FewerTurns) -> LikelyWay:
    """The likely cause, and where the source shows it."""
    loop, ranks = short.loop, case.name(short.left)
    if (error := _caught_last(case, short)) is not None:
        return _by_error(ranks, error, " in the last step")
    if short.over:
        cut_short = (
            "skipped-collective",
            f"a turn of {ranks} may have been cut short as well: all ranks are past the loop",
        )
        return LikelyWay("uneven-steps", not_causes=(cut_short,))
    if loop is not None and loop.exits and all(map(_ended_with_its_groups, case.views(short.left))):
        return LikelyWay("early-exit", f": {ranks} may have ended at {_either(loop, loop.exits)}", loop.exits)
    if leaves := _leaves_before(case, short):
        if loop is not None and {*leaves} <= {*loop.drained}:
            return _by_its_items(loop, leaves, ranks)
        cause = "rank-local-decision" if loop is not None and _is_of_a_turn(case, short, loop) else "early-exit"
        return LikelyWay(cause, f": {ranks} may have left it at {_either(short.loop, leaves)}", leaves)
    if loop is not None and short.within_batch:
        return LikelyWay("skipped-collective", f": {ranks} made fewer turns of it, or none", (loop.where,))
    if any(has_data_left(case.ranks[rank].loader) for rank in short.left):
        return LikelyWay("early-exit", f": the loader of {ranks} had more batches")
    if loop is not None and loop.skips and (error := _caught_instead(case, short)) is not None:
        return _by_error(ranks, error, "" if error.step is None else f" in step {error.step}")
    if loop is not None and loop.skips:
        return LikelyWay(
            "skipped-collective", f": {ranks} may have skipped a step at {_either(loop, loop.skips)}", loop.skips
        )
    if loop is not None and loop.counted and loop.swallows is not None:
        at = words.place(loop.swallows)
        why = f": an error may have taken {ranks} out of it, caught silently at {at}"
        return LikelyWay("exception-on-one-rank", why, (loop.swallows,))
    if loop is not None and (ways := _past_their_calls(case, short, loop)):
        at = words.either(f"{words.place(way.where)} (`{way.text}`)" for way in ways[:3])
        why = f": {ranks} may have gone through a turn without its calls, at {at}"
        return LikelyWay("skipped-collective", why, tuple(way.where for way in ways))
    against = (
        f"the loop at {words.place(loop.where)} has no break and no return"
        if loop is not None
        else "whether the loop was left or ran out is not known without a DataLoader"
    )
    return LikelyWay("uneven-steps", not_causes=(("early-exit", against),))


def _ended_with_its_groups(view: RankView) -> bool:
    """It has not destroyed them before it ended, as a program does that comes to its end."""
    return view.dead and (not view.over or (view.reading is not None and bool(view.reading.heads)))


def _past_their_calls(case: Case, short: FewerTurns, loop: LoopFacts) -> tuple[Bypass, ...]:
    """How turns of those that left can go on without the calls that they made in the loop; not where data ended it."""
    ways: dict[Bypass, None] = {}
    for view in case.views(short.left):
        made = reversed(view.evidence.board_calls)
        last = next((call for call in made if any(loop.holds(*line) for line in path(call.frames))), None)
        if view.loader is not None or last is None:
            return ()
        ways |= dict.fromkeys(past_in_a_turn_of(case, loop, path(last.frames)))
    return tuple(ways)


def _is_of_a_turn(case: Case, short: FewerTurns, loop: LoopFacts) -> bool:
    """Its own test ends it, or what makes its items, and those that left are in the same turn of the loop around it."""
    around = [view.now.loop for view in case.views(short.left)]
    goes_on = all(each is not None and each.where in loop.outer for each in around)
    return loop.leaves in ((loop.where,), loop.of_items) and goes_on


def _by_its_items(loop: LoopFacts, leaves: tuple[Frame, ...], ranks: str) -> LikelyWay:
    """It asks an iterator itself, and its source shows no other way out of it than the end of that one."""
    at = _either(loop, leaves)
    against = f"the loop at {words.place(loop.where)} is left at {at} alone, where its iterator has ended"
    why = f": the iterator of {ranks} ended first, by the source ({at})"
    return LikelyWay("uneven-steps", why, leaves, not_causes=(("early-exit", against),))


def _leaves_before(case: Case, short: FewerTurns) -> tuple[Frame, ...]:
    """How the loop can be left without the call in which the others stand: not by a `return` of what makes it."""
    stacks = (case.ranks[rank].evidence.main_stack for rank in short.inside)
    lines = {frame.source_line for stack in stacks for frame in stack}
    leaves = short.loop.leaves if short.loop is not None else ()
    return tuple(each for each in leaves if each.source_line not in lines)


def _by_error(ranks: str, error: ExceptionFacts, when: str) -> LikelyWay:
    where = user_frame(error.frames)
    why = f": {ranks} raised {words.error(error)}{words.at(where)}{when}, and caught it"
    return LikelyWay("exception-on-one-rank", why, (where,) if where is not None else ())


def _caught_last(case: Case, short: FewerTurns) -> ExceptionFacts | None:
    """What all that left caught in their last step, and none of those in the loop in theirs."""
    errors = [last_caught(case.ranks[rank]) for rank in short.left]
    theirs = any(last_caught(case.ranks[rank]) is not None for rank in short.inside)
    return None if theirs or None in errors else next(iter(errors), None)


def _caught_instead(case: Case, short: FewerTurns) -> ExceptionFacts | None:
    """The first error of those that left, each of which caught one for every turn it lacks; the others caught none."""
    errors = {rank: all_caught(case.ranks[rank]) for rank in short.left}
    theirs = any(all_caught(case.ranks[inside]) for inside in short.inside)
    most = short.begun.get(short.inside[0])
    fit = all(errors.values()) and all(
        most is None or len(caught) == most - short.made.get(rank, 0) for rank, caught in errors.items()
    )
    return errors[short.left[0]][0] if fit and not theirs else None


def may_begin_elsewhere(loop: LoopFacts) -> bool:
    """It counts from a number that the source does not give, such as the step that a rank resumes from."""
    return loop.counted and _BEGINS.match(loop.items) is not None


def ways_out(loop: LoopFacts | None) -> tuple[str, ...]:
    if loop is None:
        return ()
    found = [*ways_to_leave(loop)]
    if may_begin_elsewhere(loop):
        found.append(
            f"the loop at {words.place(loop.where)} goes through `{loop.items}`, which may begin elsewhere on each rank"
        )
    if loop.items and not (loop.leaves or loop.counted):
        found.append(f"the loop at {words.place(loop.where)} makes a turn for each item of `{loop.items}`")
    if loop.exits:
        found.append(f"the process can end in the loop at {words.place(loop.where)}, at {_places(loop.exits)}")
    if loop.skips:
        found.append(f"a turn of the loop at {words.place(loop.where)} can be cut short at {_places(loop.skips)}")
    if loop.swallows is not None:
        found.append(f"the loop stands in a try whose errors go no further than {words.place(loop.swallows)}")
    return tuple(found)


def ways_to_leave(loop: LoopFacts | None) -> tuple[str, ...]:
    """How the loop can be left before its end."""
    return (_left_at(loop, loop.where, loop.leaves),) if loop is not None and loop.leaves else ()


def ways_out_of_outer(loop: LoopFacts | None) -> tuple[str, ...]:
    """How the loops around `loop` can be left, such as the one over the epochs around that over the data."""
    if loop is None:
        return ()
    pairs = zip(loop.outer, loop.outer_leaves, strict=False)
    return tuple(_left_at(loop, where, leaves) for where, leaves in pairs if leaves)


def _left_at(known: LoopFacts, loop: Frame, leaves: tuple[Frame, ...]) -> str:
    return (
        f"the loop at {words.place(loop)} can be left at {words.listed([said_at(known, each) for each in leaves[:3]])}"
    )


def _either(loop: LoopFacts | None, frames: tuple[Frame, ...]) -> str:
    return words.either(said_at(loop, frame) for frame in frames[:3])


def said_at(loop: LoopFacts | None, place: Frame) -> str:
    """A place by which the loop can be left, with what stands there where that is known."""
    text = next((way.text for way in loop.ways_out if way.where == place), "") if loop is not None else ""
    return f"{words.place(place)} (`{text}`)" if text else words.place(place)


def _places(frames: tuple[Frame, ...]) -> str:
    return words.listed([words.place(frame) for frame in frames[:3]])


def tries_again_at(case: Case, short: FewerTurns) -> Frame | None:
    """The except clause after which the loop calls again, where a call that succeeds is what ends the loop.

    Of more ranks than are past it, none has more turns than usual; and an error that is known of those tells more.
    """
    loop, view = short.loop, case.ranks[short.inside[0]]
    if loop is None or len(loop.skips) != 1 or len(short.inside) > len(short.left):
        return None
    if any(all_caught(case.ranks[rank]) for rank in short.left):
        return None
    if not past_by_an_error(case, path(view.evidence.main_stack)):
        return None
    inside = {frame.source_line for frame in view.evidence.main_stack}
    return loop.skips[0] if any(each.source_line in inside for each in loop.leaves) else None
