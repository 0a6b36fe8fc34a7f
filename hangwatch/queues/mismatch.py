"""Different calls under one number: one call that was changed, or calls from different places of the program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from hangwatch import words
from hangwatch.model import Alternative, Certainty
from hangwatch.ranks.tensors import elements

from .departures import AS_OFTEN, departed_in
from .finding import Finding, alone_cause, collective, wait_edges
from .fresh import all_recorded, rounds_more, unlike_before
from .history import Histories
from .matching import kind_of, odd_ones, shape
from .model import Call
from .names import apart, at, of_no_line, path_of, ranks
from .next_calls import alternatives as _or_the_next
from .next_calls import changes, may_be_next
from .readings import out_of_order
from .stuck import Stuck

_MISMATCH, _ALONE, _DECIDED, _UNEVEN, _SKIPPED, _CADENCE = (
    "collective-mismatch",
    "rank-zero-only-collective",
    "rank-local-decision",
    "uneven-steps",
    "skipped-collective",
    "gradient-sync-mismatch",
)
_FRESH, _ROUTINE = "never made that call before", "made such calls in earlier rounds too"
_NOT_RECORDED = "made no such call before that is still recorded"
SPLITS_FIX = (
    "exchange the counts before the data: what each rank gives as input_split_sizes has to be what its peers give as"
    " output_split_sizes for it, in each call"
)
_MESSAGES_FIX = (
    "give the send and its receive one shape and dtype: send the shape first, or pad what may be shorter, such as the"
    " last batch"
)
_GRADIENTS_FIX = (
    "backward reduces gradients there: give every rank the same parameters, in one order, of one type and all of them"
    " used, and the same bucket sizes"
)
_LIKE = 2  # a batch that is cut short, or a tensor that is padded, is of the same order


def mismatched(root: Stuck, histories: Histories) -> Finding:
    """Different calls are paired under one number: blame is with what left the order before, else the minority."""
    before = departed_in(root, histories)
    if before is not None and not root.peers:
        return before
    odd = _minority(root, histories)
    habit = _unlike_their_habit(root, histories, odd)
    who = odd or habit or _unlike_other_groups(root, histories)
    alone = list(root.waiting) if not who and _left_alone(root) else []
    behind = rounds_more(root, histories) if not who else []
    blamed = who or behind or alone or sorted(root.calls if root.sides or root.peers else {})
    same_behind = _same_behind(root, histories)
    agree = bool(odd) and odd == habit and (same_behind or _one_line(root))
    parted = _apart(root, who, histories, fresh=bool(habit)) if not (same_behind or root.peers) else None
    told = (odd or (who and (root.peers or all_recorded(root)))) and parted is None
    more = _rounds_more(root, behind, histories) if behind and not _one_line(root) else ""
    causes = parted.causes() if parted is not None else (_UNEVEN, _MISMATCH) if more else (_MISMATCH,)
    next_one = parted is None and not same_behind and _one_line(root) and may_be_next(root, who, histories)
    unsure = next_one and changes(root, who, histories)
    texts = _side_words(root)
    others = tuple(rank for rank in sorted(root.calls) if rank not in blamed)
    return Finding(
        causes[0],
        _certainty(told=bool(told) and not unsure, proven=agree and not next_one),
        _summary(root, texts) + (parted.said() if parted is not None else more),
        culprits=tuple((rank, root.calls[rank].where) for rank in blamed),
        victims=others,
        evidence=tuple(f"{_numbered(root)}{text}" for text in texts[:3]),
        alternatives=(
            tuple(_or_else(causes[1:], who or behind, parted))
            or _or_a_round_more(behind)
            or _or_the_next(who if next_one else [])
        ),
        waits=wait_edges(root, blamed) if others else (),
        fix=_fix(root, histories) if causes[0] == _MISMATCH else AS_OFTEN if more else "",
    )


def _certainty(*, told: bool, proven: bool) -> Certainty:
    return Certainty.PROVEN if told and proven else Certainty.LIKELY if told else Certainty.UNDETERMINED


def _numbered(root: Stuck) -> str:
    """The ranks of a message number its two sides each for itself."""
    return "" if root.peers else f"number {root.number} of {root.group.title}: "


def _left_alone(root: Stuck) -> bool:
    """Few wait in calls that do not fit, and all others are through: those expect more than is sent to them."""
    return bool(root.why) and len(root.calls) == len(root.group.members) and 2 * len(root.waiting) <= len(root.calls)


def _wait(root: Stuck) -> str:
    return words.verb(len(root.waiting), "waits", "wait")


def _fix(root: Stuck, histories: Histories) -> str:
    """What makes such calls fit again; "" for the usual words."""
    calls = root.calls.values()
    if root.peers:
        return _MESSAGES_FIX
    if all(kind_of(call) == "all_to_all" for call in calls):
        return SPLITS_FIX
    return _GRADIENTS_FIX if histories.sited and all(map(of_no_line, calls)) else ""


# ------------------------------------------------------------------------------------------ whose call is another one


def _minority(root: Stuck, histories: Histories) -> list[int]:
    """The ranks that differ from most; none where the histories show that most may have left the common order."""
    odd = odd_ones(root.sides) if root.sides else []
    if not odd or root.peers or not all_recorded(root):
        return odd
    found = histories.departure(root.group, root.number)
    same = found is not None and (found.number, list(found.ranks)) == (root.number, odd)
    return [] if same and found is not None and not (found.majority or found.habit) else odd


def _unlike_their_habit(root: Stuck, histories: Histories, odd: list[int]) -> list[int]:
    """The ranks to which their call is new; without a majority only where the others kept their order."""
    new = unlike_before(root, histories)
    if odd or root.peers:
        return new
    lanes = (root.group.lanes[rank] for rank in root.calls if rank not in new)
    strayed = (out_of_order(histories.tokens(lane), lane.places(root.number).start) for lane in lanes)
    return [] if any(strayed) else new


def _unlike_other_groups(root: Stuck, histories: Histories) -> list[int]:
    """The ranks that call otherwise than those of other groups do in the same place of the same order."""
    found = histories.departure(root.group, root.number) if not root.peers else None
    if found is None or found.number != root.number or not (found.majority and found.beside):
        return []
    return list(found.ranks)


def _same_behind(root: Stuck, histories: Histories) -> bool:
    """Whether the histories agree again behind the call: it stands in the place of the others' call."""
    departure = histories.departure(root.group)
    return departure is not None and departure.number == root.number and departure.agreeing > 0


# ------------------------------------------------------------------------------------------ places of the program


@dataclass(frozen=True, slots=True)
class _Apart:
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

    def causes(self) -> tuple[str, ...]:
        """What it may be, what fits best first.

        A program that lets few ranks do something alone lets rank 0 do it, or those of its machine or replica.
        """
        if self.routine:
            return _SKIPPED, alone_cause(self.who), _UNEVEN
        if self.of_a_step:
            return (_CADENCE, _SKIPPED) if self.fresh else (_SKIPPED, _UNEVEN)
        alone = (_ALONE, _UNEVEN) if 0 in self.who else (_UNEVEN, _DECIDED, _SKIPPED)
        alone = (alone_cause(self.who), _SKIPPED) if self.goes_on else alone
        alone = (alone_cause(self.who), _UNEVEN, _SKIPPED) if self.turned else alone
        return (_MISMATCH, *alone) if self.one_call or not self.why else (*alone, _MISMATCH)

    def said(self) -> str:
        """What is known of these ranks, as a sentence."""
        if not self.why:
            return " No call before them is recorded that would tell which ranks left the order, and how."
        they, missed = len(self.who), "that of the others" if self.of_a_step else "a call, or added one"
        lone = f"it may be one that {words.verb(they, 'this rank makes', 'these ranks make')} alone"
        best = {
            _MISMATCH: "it may stand in the place of the others' call",
            _ALONE: lone,
            _DECIDED: lone,
            _CADENCE: f"{words.verb(they, 'it', 'they')} may synchronise gradients in another batch than the others",
            _UNEVEN: f"{words.verb(they, 'this rank', 'these ranks')} may have left the loop earlier",
            _SKIPPED: f"{words.verb(they, 'this rank', 'these ranks')} may have left out {missed}",
        }
        return f" {ranks(self.who, capital=True)} {self.why}: {best[self.causes()[0]]}."


def _apart(root: Stuck, who: list[int], histories: Histories, *, fresh: bool) -> _Apart | None:
    """What tells that the ranks `who` are at another place; None where their call is the others' one, changed."""
    if not who:
        return None
    own, other = root.calls[who[0]], next(call for rank, call in root.calls.items() if rank not in who)
    elsewhere = _of_another_function(root, who)
    routine = not fresh and _is_routine(root, who, histories)
    sited = histories.sited
    if not routine and (_one_line(root) or _is_changed(root, own, other, sited, fresh, elsewhere)):
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
    return _Apart(who, why, routine, fresh, of_a_step, one_call, goes_on, turned=bool(new_way))


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


def _one_line(root: Stuck) -> bool:
    """Whether all sides call from one line: the call itself is another one, and not the path that led to it."""
    places = {(call.where.file, call.where.line) if call.where else None for call in root.calls.values()}
    return len(places) == 1 and None not in places


def _of_another_function(root: Stuck, who: list[int]) -> bool:
    """Whether these ranks call from a function from which no other rank calls, or for a barrier: not one call changed.

    torch's own thread calls from none.
    """
    own, others = ([call for rank, call in root.calls.items() if (rank in who) is mine] for mine in (True, False))
    places = [
        {(call.where.file, call.where.function) if call.where else None for call in each} for each in (own, others)
    ]
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


# ------------------------------------------------------------------------------------------ words


def _summary(root: Stuck, texts: list[str]) -> str:
    if root.peers:
        one, other = root.peers
        sent, taken = root.calls[one], root.calls[other]
        ends = f"{sent.op} of rank {one} to rank {other}{at(sent)} and the {taken.op} there{at(taken)}"
        return f"The {ends} differ in size or type."
    if not root.sides:
        left = f"; of all only {ranks(root.waiting)} still {_wait(root)} in it" if _left_alone(root) else ""
        return f"The calls of {collective(root)} do not fit: {root.why}{at(root.call)}{left}."
    ops = {each.op for each in root.calls.values()}
    one_call = len(ops) == 1 and _one_line(root)
    what = f"give {ops.pop()} different sizes or types" if one_call else "call different collectives"
    return f"The ranks {what} as number {root.number} of {root.group.title}: {words.listed(texts)}."


def _or_else(causes: Iterable[str], who: list[int], parted: _Apart | None) -> Iterable[Alternative]:
    if parted is not None and parted.of_a_step and not parted.fresh:
        said = f"{ranks(who)} may be in a round more, where the others have ended their loop"
        return (Alternative(cause, Certainty.UNDETERMINED, said) for cause in causes)
    lone = f"{ranks(who)} may make that call alone, on a condition that the others do not meet"
    texts = {
        _MISMATCH: f"the call of {ranks(who)} may stand in the place of the others', on another branch",
        _ALONE: lone,
        _DECIDED: lone,
        _UNEVEN: f"that call of {ranks(who)} may come after the end of a loop",
        _SKIPPED: f"{ranks(who)} may have left out calls before that one",
    }
    return (Alternative(cause, Certainty.UNDETERMINED, texts[cause]) for cause in causes)


def _rounds_more(root: Stuck, behind: list[int], histories: Histories) -> str:
    """What the few ranks called of their rounds there, as a sentence; "" where they called something new behind it."""
    lane, other = root.group.lanes[behind[0]], next(call for rank, call in root.calls.items() if rank not in behind)
    tokens, place = histories.tokens(lane), lane.places(root.number).start
    wanted, later = histories.token_of(other), list(tokens[place:])
    came = wanted in later
    later = later[: later.index(wanted)] if came else later
    if not set(later) <= set(tokens[:place]):
        return ""
    calls, too = words.plural(len(later), "call"), ", and then came to it too" if came else ""
    new = "where all others came to a call that is new to them"
    return f" {ranks(behind, capital=True)} made {calls} like those of the rounds before from there on, {new}{too}."


def _or_a_round_more(behind: list[int]) -> tuple[Alternative, ...]:
    if not behind:
        return ()
    said = f"all others have come to a call that is new to them: {ranks(behind)} may have a round more to make"
    return (Alternative(_UNEVEN, Certainty.UNDETERMINED, said),)


def _side_words(root: Stuck) -> list[str]:
    if not root.sides:
        first = set(root.waiting) if _left_alone(root) else set[int]()
        told = sorted(root.calls.items(), key=lambda each: (each[0] not in first, each[0]))
        return [f"{ranks([rank])}: {call.op}{_sizes(call)}{at(call)}" for rank, call in told[:4]]
    sides = sorted(root.sides.values(), key=lambda who: (len(who), who))
    most = root.calls[sides[-1][0]]
    return [
        f"{ranks(who)} {words.verb(len(who), 'calls', 'call')} {_called(root.calls[who[0]], most)}" for who in sides[:4]
    ]


def _sizes(call: Call) -> str:
    given, made = elements(call.inputs), elements(call.outputs)
    if call.source is not None and call.target is not None:
        own = given if call.op == "send" else made
        return f" of {words.plural(own, 'element')}" if own is not None else ""
    return f" of {given:,} elements for {made:,}" if given is not None and made is not None else ""


def _called(call: Call, most: Call) -> str:
    """The call with its line, by which it is told apart from that of most ranks."""
    return f"{shape(call)}{words.at(apart(call, most)[0])}"
