"""Different calls under one number: one call that was changed, or calls from different places of the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hangwatch import words
from hangwatch.model import Alternative, Certainty
from hangwatch.ranks.tensors import dtype_name, elements

from .departures import AS_OFTEN, departed_in
from .finding import Finding, all_waits, collective, victims, wait_edges
from .fresh import all_recorded, rounds_more, unlike_before
from .history import Histories
from .matching import kind_of, odd_ones, shape
from .model import Call
from .names import apart, at, of_no_line, ranks, say
from .next_calls import alternatives as _or_the_next
from .next_calls import changes, may_be_next
from .other_place import MISMATCH, UNEVEN, apart_from, one_line, or_else
from .readings import out_of_order
from .stuck import Kind as Stands
from .stuck import Stuck

SPLITS_FIX = (
    "exchange the counts before the data: what each rank gives as input_split_sizes has to be what its peers give as"
    " output_split_sizes for it, in each call"
)
_MESSAGES_FIX = (
    "give the send and its receive one shape and dtype: send the shape first, or pad what may be shorter, such as the"
    " last batch"
)
_TYPES_FIX = (
    "give that call one dtype on every rank: the sizes agree, so that nothing is to be padded; look for a cast, an"
    " autocast or a default that only some ranks come to"
)
_ROOT_FIX = "let all ranks give the same root (dst of gather, src of scatter), and the root alone the list of tensors"
_GRADIENTS_FIX = (
    "backward reduces gradients there: give every rank the same parameters, in one order, of one type and all of them"
    " used, and the same bucket sizes"
)


def mismatched(root: Stuck, histories: Histories, path: Sequence[Stuck] = ()) -> Finding:
    """Different calls are paired under one number: blame is with what left the order before, else the minority.

    `path` are the calls of a chain that ends there, in which others may wait for the same ranks.
    """
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
    agree = bool(odd) and odd == habit and (same_behind or one_line(root))
    parted = apart_from(root, who, histories, fresh=bool(habit)) if not (same_behind or root.peers) else None
    told = (odd or (who and (root.peers or all_recorded(root)))) and parted is None
    more = _rounds_more(root, behind, histories) if behind and not one_line(root) else ""
    causes = parted.causes() if parted is not None else (UNEVEN, MISMATCH) if more else (MISMATCH,)
    next_one = parted is None and not same_behind and one_line(root) and may_be_next(root, who, histories)
    unsure = next_one and changes(root, who, histories)
    texts = _side_words(root)
    others = tuple(rank for rank in sorted(root.calls) if rank not in blamed)
    elsewhere = [each for each in path if each.kind is Stands.ABSENT and each.awaited and {*each.awaited} <= {*who}]
    return Finding(
        causes[0],
        _certainty(told=bool(told) and not unsure, proven=agree and not next_one),
        _summary(root, texts) + (parted.said() if parted is not None else more),
        culprits=tuple((rank, root.calls[rank].where) for rank in blamed),
        victims=tuple(sorted({*others, *victims(elsewhere, blamed)})),
        evidence=tuple(f"{_numbered(root)}{text}" for text in texts[:3]),
        alternatives=(
            *_or_in_the_other_group(root, elsewhere),
            *(
                tuple(or_else(causes[1:], who or behind, parted))
                or _or_a_round_more(behind)
                or _or_the_next(who if next_one else [])
            ),
        ),
        waits=(*all_waits(elsewhere), *(wait_edges(root, blamed) if others else ())),
        fix=_fix(root, histories) if causes[0] == MISMATCH else AS_OFTEN if more else "",
    )


def _certainty(*, told: bool, proven: bool) -> Certainty:
    return Certainty.PROVEN if told and proven else Certainty.LIKELY if told else Certainty.UNDETERMINED


def _numbered(root: Stuck) -> str:
    """The ranks of a message number its two sides each for itself."""
    return "" if root.peers else f"number {root.number} of {root.group.title}: "


def _left_alone(root: Stuck) -> bool:
    """Few wait in calls that do not fit, and all others are through: those expect more than is sent to them."""
    return bool(root.why) and len(root.calls) == len(root.group.members) and 2 * len(root.waiting) <= len(root.calls)


def _fix(root: Stuck, histories: Histories) -> str:
    """What makes such calls fit again; "" for the usual words."""
    calls = root.calls.values()
    if root.peers:
        return _MESSAGES_FIX
    if all(kind_of(call) == "all_to_all" for call in calls):
        return SPLITS_FIX
    if root.why and all(kind_of(call) in ("gather", "scatter") for call in calls):
        return _ROOT_FIX
    if root.sides and len({replace(side, dtypes="") for side in root.sides}) == 1:
        return _TYPES_FIX
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


# ------------------------------------------------------------------------------------------ words


def _summary(root: Stuck, texts: list[str]) -> str:
    if root.peers:
        one, other = root.peers
        sent, taken = root.calls[one], root.calls[other]
        ends = f"{sent.op} of rank {one} to rank {other}{at(sent)} and the {taken.op} there{at(taken)}"
        return f"The {ends} differ in {_difference(sent, taken)}."
    if not root.sides:
        left = f"; of all only {say(root.waiting, 'still waits', 'still wait')} in it" if _left_alone(root) else ""
        return f"The calls of {collective(root)} do not fit: {root.why}{at(root.call)}{left}."
    ops = {each.op for each in root.calls.values()}
    one_call = len(ops) == 1 and (one_line(root) or all(call.where is None for call in root.calls.values()))
    what = f"give {ops.pop()} different sizes or types" if one_call else "call different collectives"
    return f"The ranks {what} as number {root.number} of {root.group.title}: {words.listed(texts)}."


def _difference(send: Call, receive: Call) -> str:
    """What two ends of a message do not have in common; a size in elements comes before a type."""
    given, made = elements(send.inputs), elements(receive.outputs)
    if given is not None and made is not None and given != made:
        return f"size, {given:,} against {words.plural(made, 'element')}"
    types = [", ".join(map(dtype_name, names)) for names in (send.input_dtypes, receive.output_dtypes)]
    return f"type, {types[0]} against {types[1]}" if all(types) else "size or type"


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
    return (Alternative(UNEVEN, Certainty.UNDETERMINED, said),)


def _or_in_the_other_group(root: Stuck, elsewhere: Sequence[Stuck]) -> Iterator[Alternative]:
    """A rank may have made the call for which others wait, and in the wrong group."""
    for one in elsewhere:
        (rank, *more), wanted = one.awaited, one.call
        if not more and wanted is not None and rank in root.calls and shape(root.calls[rank]) == shape(wanted):
            said = (
                f"{say(one.waiting, 'waits', 'wait')} for rank {rank} in {collective(one)}{at(wanted)}: rank {rank} may"
                f" have made that call in {root.group.title} instead"
            )
            yield Alternative(MISMATCH, Certainty.UNDETERMINED, said)


def _side_words(root: Stuck) -> list[str]:
    if not root.sides:
        first = set(root.waiting) if _left_alone(root) else set[int]()
        told = sorted(root.calls.items(), key=lambda each: (each[0] not in first, each[0]))
        return [f"{ranks([rank])}: {call.op}{_sizes(call)}{at(call)}" for rank, call in told[:4]]
    sides = sorted(root.sides.values(), key=lambda who: (len(who), who))
    most = root.calls[sides[-1][0]]
    return [f"{say(who, 'calls', 'call')} {_called(root.calls[who[0]], most)}" for who in sides[:4]]


def _sizes(call: Call) -> str:
    given, made = elements(call.inputs), elements(call.outputs)
    if call.source is not None and call.target is not None:
        own = given if call.op == "send" else made
        return f" of {words.plural(own, 'element')}" if own is not None else ""
    return f" of {given:,} elements for {made:,}" if given is not None and made is not None else ""


def _called(call: Call, most: Call) -> str:
    """The call with its line, by which it is told apart from that of most ranks."""
    line = apart(call, most)[0]
    return f"{shape(call)}{at(call) if line in (call.where, call.caller) else words.at(line)}"
