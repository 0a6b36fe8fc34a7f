"""Ranks that may be at another place of the program than the others, which make another call under the same number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from hangwatch import words
from hangwatch.model import Alternative, Certainty
from hangwatch.ranks.sides import apart_at
from hangwatch.ranks.tensors import elements
from hangwatch.stacks.frames import origin

from .finding import alone_cause
from .history import Histories
from .matching import kind_of, shape
from .model import Call
from .names import of_no_line, path_of, ranks
from .stuck import Stuck

MISMATCH, _ALONE, _DECIDED, UNEVEN, _SKIPPED, _CADENCE = (
    "collective-mismatch",
    "rank-zero-only-collective",
    "rank-local-decision",
    "uneven-steps",
    "skipped-collective",
    "gradient-sync-mismatch",
)
_FRESH, _ROUTINE = "never made that call before", "made such calls in earlier rounds too"
_NOT_RECORDED = "made no such call before that is still recorded"
_LIKE = 2  # a batch that is cut short, or a tensor that is padded, is of the same order


@dataclass(frozen=True, slots=True)
class Apart:
    """Ranks that may be at another place of the program than the others, which make another call than they do.

    `why` tells so, "" where nothing does; `routine`: all make such calls as these ranks' one in their rounds; `fresh`:
    these ranks had made none like it.
    """

    who: list[int]
    why: str
    routine: bool
    fresh: bool
    of_a_step: bool  # no line of the program makes these ranks' call, as in backward, but one makes the others' call
    one_call: bool  # the two calls may be the two ways of one branch all the same
    goes_on: bool  # behind it, these ranks made calls of their rounds again: they have left no loop
    turned: bool = False  # they had made that call from its line, and came there by other lines
    resized: str = ""  # what is new of it, where no line is known and both calls are one operation
    inside: bool = False  # a helper made it for the function that makes the others' call: it need not be behind a loop

    def causes(self) -> tuple[str, ...]:
        """What it may be, what fits best first.

        A program that lets few ranks do something alone lets rank 0 do it, or those of its machine or replica.
        """
        if self.routine:
            return _SKIPPED, alone_cause(self.who), UNEVEN
        if self.of_a_step:
            return (_CADENCE, _SKIPPED) if self.fresh else (_SKIPPED, UNEVEN)
        alone = (_ALONE, UNEVEN) if 0 in self.who else (UNEVEN, _DECIDED, _SKIPPED)
        alone = (alone_cause(self.who), _SKIPPED) if self.goes_on else alone
        alone = (alone_cause(self.who), UNEVEN, _SKIPPED) if self.turned or self.inside else alone
        return (MISMATCH, *alone) if self.one_call or not self.why else (*alone, MISMATCH)

    def said(self) -> str:
        """What is known of these ranks, as a sentence."""
        if not self.why:
            return " No call before them is recorded that would tell which ranks left the order, and how."
        if self.resized:
            return f" {ranks(self.who, capital=True)} never gave that call {self.resized} before."
        they, missed = len(self.who), "that of the others" if self.of_a_step else "a call, or added one"
        lone = f"it may be one that {words.verb(they, 'this rank makes', 'these ranks make')} alone"
        best = {
            MISMATCH: "it may stand in the place of the others' call",
            _ALONE: lone,
            _DECIDED: lone,
            _CADENCE: f"{words.verb(they, 'it', 'they')} may synchronise gradients in another batch than the others",
            UNEVEN: f"{words.verb(they, 'this rank', 'these ranks')} may have left the loop earlier",
            _SKIPPED: f"{words.verb(they, 'this rank', 'these ranks')} may have left out {missed}",
        }
        return f" {ranks(self.who, capital=True)} {self.why}: {best[self.causes()[0]]}."


def apart_from(root: Stuck, who: list[int], histories: Histories, *, fresh: bool) -> Apart | None:
    """What tells that the ranks `who` are at another place; None where their call is the others' one, changed."""
    if not who:
        return None
    own, other = root.calls[who[0]], next(call for rank, call in root.calls.items() if rank not in who)
    elsewhere = _of_another_function(root, who)
    routine = not fresh and _is_routine(root, who, histories)
    sited = histories.sited
    if not routine and (one_line(root) or _is_changed(root, own, other, sited, fresh, elsewhere)):
        return None
    of_a_step = histories.sited and not routine and of_no_line(own) and not of_no_line(other)
    new_way, why = "", _ROUTINE if routine else ""
    if fresh:
        lost = any(root.group.lanes[rank].lost for rank in who)
        new_way = _new_way(root, who, histories)
        why = new_way or (_NOT_RECORDED if lost else _FRESH)
    elif elsewhere and not routine:
        why = "called it from no line of the program, as in backward" if of_a_step else "came there by another path"
    one_call = (_by_one_line if sited and elsewhere else _of_one_tensor if sited else _alike)(own, other)
    goes_on = all(rank in root.order and histories.all_groups.went_on(rank, root.order[rank]) for rank in who)
    of_no_place = fresh and one_call and own.where is other.where is None and kind_of(own) == kind_of(other)
    resized = _new_of(root, who[0], histories) if of_no_place else ""
    inside = fresh and _by_a_helper(own, other)
    return Apart(
        who, why, routine, fresh, of_a_step, one_call, goes_on, turned=bool(new_way), resized=resized, inside=inside
    )


def _new_of(root: Stuck, rank: int, histories: Histories) -> str:
    """`such a size`: in what a rank's call is unlike all of that operation that it made before it."""
    own, lane = root.calls[rank], root.group.lanes[rank]
    earlier = {histories.queues.call(lane, place) for place in range(lane.places(root.number).start)}
    earlier = {call for call in earlier if kind_of(call) == kind_of(own)}
    sizes, types, counts = (
        [what(call) for call in (own, *earlier)]
        for what in (lambda call: (shape(call).given, shape(call).made), _types, lambda call: len(call.inputs))
    )
    new = [
        said
        for said, values in (("size", sizes), ("dtype", types), ("number of tensors", counts))
        if values[0] not in values[1:]
    ]
    return f"such a {words.listed(new)}" if new and earlier else "tensors of that size, type and number together"


def _types(call: Call) -> str:
    return shape(call).dtypes


def _by_a_helper(own: Call, other: Call) -> bool:
    """Whether the paths part in the function that makes the other call itself, and there went on to one of the user's.

    What comes behind a loop is often made by the function of the loop itself, or by one further out.
    """
    mine, theirs = path_of(own), path_of(other)
    parts = apart_at(mine, theirs)
    if parts is None or parts != len(theirs) - 1 or len(mine) <= len(theirs) or own.where is None:
        return False
    one, two = mine[parts], theirs[parts]
    return one.scope == two.scope and origin(own.where.file) == "user"


def _new_way(root: Stuck, who: list[int], histories: Histories) -> str:
    """What is new of a call that these ranks had made from its line before; "" where they had made none from there."""
    own, lane = root.calls[who[0]], root.group.lanes[who[0]]
    earlier = (histories.queues.call(lane, place) for place in range(lane.places(root.number).start))
    known = {
        frame for call in earlier if call.where == own.where and shape(call) == shape(own) for frame in call.frames
    }
    if own.where is None or own.where not in known:
        return ""
    new = next((frame for frame in path_of(own) if frame not in known), None)
    return f"never made that call by way of {words.place(new)} before" if new else ""


def _is_changed(root: Stuck, own: Call, other: Call, sited: bool, fresh: bool, elsewhere: bool) -> bool:
    """Whether two calls from different lines, or from lines that are not known, are one call that was changed."""
    if elsewhere:
        return False
    if fresh:
        return sited and _of_one_tensor(own, other)
    return sited or _known(root) or _alike(own, other)


def _is_routine(root: Stuck, who: list[int], histories: Histories) -> bool:
    """Whether these ranks and others have made such a call besides: then it is none that was changed here."""
    own = root.calls[who[0]]
    others = (rank for rank in root.calls if rank not in who)
    return histories.times(root.group, who[0], own) > 1 and any(
        histories.times(root.group, rank, own) for rank in others
    )


def _known(root: Stuck) -> bool:
    """Whether some rank's record has a call before this one."""
    lanes = (root.group.lanes.get(rank) for rank in root.calls)
    return any(lane is not None and len(lane) and lane.numbers[0] < root.number for lane in lanes)


def one_line(root: Stuck) -> bool:
    """Whether all sides call from one line: the call itself is another one, and not the path that led to it."""
    places = {call.where.source_line if call.where else None for call in root.calls.values()}
    return len(places) == 1 and None not in places


def _of_another_function(root: Stuck, who: list[int]) -> bool:
    """Whether these ranks call from a function from which no other rank calls, or for a barrier: not one call changed.

    torch's own thread calls from none.
    """
    own, others = ([call for rank, call in root.calls.items() if (rank in who) is mine] for mine in (True, False))
    places = [{call.where.scope if call.where else None for call in each} for each in (own, others)]
    barriers = [{kind_of(call) == "barrier" for call in each} for each in (own, others)]
    return places[0].isdisjoint(places[1]) or barriers[0].isdisjoint(barriers[1])


def _of_one_tensor(own: Call, other: Call) -> bool:
    """Whether two calls are given the same tensors, but for one dimension or the type; single numbers tell nothing."""
    if len(own.inputs) != len(other.inputs) or (elements(own.inputs) or 0) <= len(own.inputs):
        return False
    differ = [
        sum(mine != theirs for mine, theirs in zip_longest(one, two))
        for one, two in zip(own.inputs, other.inputs, strict=True)
    ]
    many = all(len(one) > 1 for one in own.inputs)  # tensors of one dimension that differ in it share nothing
    return bool(differ) and max(differ) <= many


def _alike(own: Call, other: Call) -> bool:
    """Whether two calls whose lines are not known are one operation on tensors of like size, or one tensor's."""
    sizes = [elements(call.inputs) or 0 for call in (own, other)]
    one_kind = kind_of(own) == kind_of(other) and "barrier" not in (own.op, other.op)
    return _of_one_tensor(own, other) or (one_kind and 0 < max(sizes) <= _LIKE * min(sizes))


def _by_one_line(own: Call, other: Call) -> bool:
    """Whether the paths part behind one line of the program, which called another function on each side."""
    for mine, theirs in zip_longest(path_of(own), path_of(other)):
        if mine != theirs:
            return bool(mine and theirs) and mine.function != theirs.function and mine.file == theirs.file
    return False


def or_else(causes: Iterable[str], who: list[int], parted: Apart | None) -> Iterable[Alternative]:
    if parted is not None and parted.of_a_step and not parted.fresh:
        said = f"{ranks(who)} may be in a round more, where the others have ended their loop"
        return (Alternative(cause, Certainty.UNDETERMINED, said) for cause in causes)
    lone = f"{ranks(who)} may make that call alone, on a condition that the others do not meet"
    texts = {
        MISMATCH: f"the call of {ranks(who)} may stand in the place of the others', on another branch",
        _ALONE: lone,
        _DECIDED: lone,
        UNEVEN: f"that call of {ranks(who)} may come after the end of a loop",
        _SKIPPED: f"{ranks(who)} may have left out calls before that one",
    }
    return (Alternative(cause, Certainty.UNDETERMINED, texts[cause]) for cause in causes)
