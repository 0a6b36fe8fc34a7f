"""How one order of calls came to part from another: calls that were left out, added, moved, or another call.

The others stand where they wait, so that what they would have called next is expected from their earlier rounds. Every
reading is tried against that; one which explains all that the rank recorded behind the place counts for more than one
that explains less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import TypeVar

from .turns import OFTEN, rounds

Token = TypeVar("Token", bound=Hashable)

FARTHEST = 32  # calls that a rank may have left out or added at one place
LOOKED_AT = 64  # calls behind it that are compared
# Calls in a row that agree again: of all the readings that are tried one fits a few of them by chance, but not so many,
# and then it does not matter that later ones contradict it.
ENOUGH = 8
SEVERAL = 4  # rounds, at least, with a call that most ranks leave out now, where few still make it
AS_OTHERS = 2  # calls behind one that was left out that are as the others': where it came later, it would be among them
_CONTEXT = 256  # calls from which the next one is expected: a metric may come once in many rounds


class Kind(StrEnum):
    SKIPPED = "skipped"
    EXTRA = "extra"
    MOVED = "moved"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Reading:
    """`count` calls were left out, added or moved; `agreeing` recorded ones agree again behind them.

    `whole` says that nothing which the rank recorded behind the place contradicts it. `run`: one side left a run of
    calls which the other one continued; by how many they differ is not known. `again`: a call made once more, right
    behind the first time, explains all of it as well as those that were left out. `scattered`: the calls that were left
    out or added are one call, or of one operation, between others on which the orders agree. `instead`: as many calls
    added, where some were left out, or the other way round, explain all of it too; 0 where they do not.

    Of another call, `instead` calls were left out, or as many made once more right behind the first time.
    """

    kind: Kind
    count: int = 1
    agreeing: int = 0
    whole: bool = False
    run: bool = False
    again: bool = False
    scattered: bool = False
    instead: int = 0


def read(row: Sequence[int], usual: Sequence[int], place: int, kind: Callable[[int], str] | None = None) -> Reading:
    """The reading that explains best how `row` goes on from `place`, where it first differs from `usual`.

    `kind` tells the operation of a call, where that may be compared.
    """
    found = _read(row, usual, place)
    return found if kind is None else _of_one_kind(found, row[place:], usual[place:], kind)


def _of_one_kind(reading: Reading, mine: Sequence[int], theirs: Sequence[int], kind: Callable[[int], str]) -> Reading:
    """Calls of one operation that were left out between others, where that explains all with fewer calls.

    Each layer reduces its gradients in a call of its own size, and gathers its weights in between.
    """
    left = kind(theirs[0])
    others = [token for token in theirs if kind(token) != left]
    if reading.kind is not Kind.SKIPPED or len(mine) < 2 or others[: len(mine)] != list(mine):
        return reading
    passed = count = 0
    for token in theirs:
        if passed == len(mine):
            break
        passed, count = (passed, count + 1) if kind(token) == left else (passed + 1, count)
    return replace(reading, count=count, agreeing=passed, scattered=True) if 1 < count < reading.count else reading


def _read(row: Sequence[int], usual: Sequence[int], place: int) -> Reading:
    mine, theirs = list(row[place : place + LOOKED_AT + FARTHEST]), list(usual[place:])
    if (moved := _moved_to_the_end(mine, theirs)) is not None:
        return moved
    due = theirs + expected(usual, LOOKED_AT + FARTHEST - len(theirs))
    found = [each for each in _tried(mine, due, len(theirs), list(row[:place])) if each.agreeing]
    skipped = next((each for each in found if each.kind is Kind.SKIPPED), None)
    extra = next((each for each in found if each.kind is Kind.EXTRA), None)
    if skipped is not None and extra is not None:
        return _of_both(skipped, extra, row, usual, place)
    turns = extra.count if extra is not None and are_turns(mine[: extra.count], list(row[:place])) else 0
    if extra is not None and _may_be_next_rounds(extra, mine, usual[:place]):
        extra = None
    if skipped is not None and extra is None and _tells_little(skipped, mine, row[:place]):
        return Reading(Kind.OTHER, whole=True)
    if skipped is not None and extra is None and skipped.count == len(mine) == 1 and mine == list(row[:place][-1:]):
        skipped = replace(skipped, again=True)  # nothing is recorded behind it that would tell
    best = skipped or extra
    between = _scattered(mine, due)
    again = best is not None and best is extra and turns > 0  # turns of a loop in a row are one change
    if between is not None and not again and _explains_more(between, best, mine):
        best = replace(between, instead=turns)
    other = next((each for each in found if each.kind in (Kind.MOVED, Kind.OTHER)), None)
    if other is not None and (best is None or other.agreeing >= best.agreeing):
        return other if best is None or other.agreeing > best.agreeing else Reading(Kind.OTHER, whole=True)
    return best or Reading(Kind.OTHER, instead=turns)


def _moved_to_the_end(mine: Sequence[int], theirs: Sequence[int]) -> Reading | None:
    """Both recorded the same calls there, the first few in another order, and no call that the other one lacks.

    Were one left out, the rank would have come a call further in its program than the others.
    """
    if len(mine) != len(theirs) or Counter(mine) != Counter(theirs):
        return None
    moved = next(count for count in range(2, len(mine) + 1) if Counter(mine[:count]) == Counter(theirs[:count]))
    return Reading(Kind.MOVED, moved, len(mine), whole=True) if mine[moved:] == theirs[moved:] else None


def _of_both(skipped: Reading, extra: Reading, row: Sequence[int], usual: Sequence[int], place: int) -> Reading:
    """In a loop a call that was left out looks like the rest of a round that was added.

    What comes once in many rounds tells them apart, where one of the two explains all that is recorded, or one alone is
    at odds with what the others made: what they make next is only expected, and a loop may end. Else a call made twice
    in a row is no greater change than one that is left out, where each is one call; calls that were made again are what
    counts where they are far fewer than those that would have been left out.
    """
    mine, before = list(row[place : place + LOOKED_AT + FARTHEST]), list(row[:place])
    again = are_turns(mine[: extra.count], before)
    to_the_end = [_to_the_end(each, mine) for each in (skipped, extra)]
    left_out = skipped.count * to_the_end[0]
    if again and to_the_end[1]:
        skipped, extra = replace(skipped, instead=extra.count), replace(extra, instead=left_out)
    to_the_end[1] &= not _may_be_next_rounds(extra, mine, before)
    if to_the_end.count(True) == 1:
        return skipped if to_the_end[0] else extra
    as_made = [
        _agrees(row[place + at :], usual[place + there :]) for at, there in ((0, skipped.count), (extra.count, 0))
    ]
    if as_made.count(True) == 1:
        return replace(skipped if as_made[0] else extra, instead=0)
    if extra.count == skipped.count and again:
        return Reading(Kind.OTHER, whole=True, instead=extra.count)
    if not before and all(to_the_end):  # nothing is recorded before that would tell: the fewest calls are told
        fewer, more = (skipped, extra) if skipped.count <= extra.count else (extra, skipped)
        return replace(fewer, instead=more.count)
    return (
        extra
        if 2 * extra.count < skipped.count and again
        else replace(skipped, again=again and extra.count < skipped.count)
    )


def _agrees(mine: Sequence[int], theirs: Sequence[int]) -> bool:
    """Whether nothing that both recorded differs."""
    length = min(len(mine), len(theirs))
    return mine[:length] == theirs[:length]


def as_changed(
    row: Sequence[int], usual: Sequence[int], place: int, of_one_path: Callable[[int, int], bool]
) -> Reading | None:
    """The reading by which a row's calls are the usual ones, from the same lines and on tensors of sizes new to all.

    None where the orders differ in more, or nothing behind the place is recorded that would tell.
    """
    if not of_one_path(row[place], usual[place]):
        return None
    known, pairs = {*usual, *row[:place]}, zip(row[place:], usual[place : place + LOOKED_AT], strict=False)
    same = 0
    for mine, theirs in pairs:
        if mine != theirs and (mine in known or not of_one_path(mine, theirs)):
            break
        same += 1
    to_the_end = same == min(len(row) - place, len(usual) - place, LOOKED_AT)
    return Reading(Kind.OTHER, 1, same - 1, whole=True) if same > 1 and (to_the_end or same >= ENOUGH) else None


def are_turns(added: list[int], before: list[int]) -> bool:
    """Whether calls are those made right before, once more or several times: turns of one loop."""
    sizes = (size for size in range(1, len(added) + 1) if len(added) % size == 0)
    return any(before[-size:] * (len(added) // size) == added for size in sizes)


def _to_the_end(reading: Reading, mine: Sequence[int]) -> bool:
    """Whether a reading explains all that the rank recorded behind the place."""
    added = reading.count if reading.kind is Kind.EXTRA else 0
    return reading.agreeing == min(len(mine) - added, LOOKED_AT)


def _scattered(mine: Sequence[int], due: Sequence[int]) -> Reading | None:
    """One call that was left out or added several times, as each layer's is: but for it the orders agree to the end."""
    for kind, token in ((Kind.SKIPPED, due[:1]), (Kind.EXTRA, mine[:1])):
        own, other = ([each for each in calls if each not in token] for calls in (mine, due))
        same = _same(own, other)
        if same < min(len(own), LOOKED_AT) or len(set(own[:same])) < 2:
            continue
        made, usual = (_until(calls, token, same) for calls in (mine, due))
        count = usual - made if kind is Kind.SKIPPED else made - usual
        if count > 1:
            return Reading(kind, count, same, whole=True, scattered=True)
    return None


def _explains_more(between: Reading, best: Reading | None, mine: Sequence[int]) -> bool:
    """Whether one call between others explains what no other reading does, or what one does with far more calls."""
    if best is None or not _to_the_end(best, mine):
        return between.agreeing >= ENOUGH
    return 2 * between.count < best.count and between.agreeing >= best.agreeing


def _until(calls: Sequence[int], token: Sequence[int], others: int) -> int:
    """How often that call comes before so many other calls have come."""
    made = 0
    for each in calls:
        made += each in token
        others -= each not in token
        if not others:
            break
    return made


def _may_be_next_rounds(extra: Reading, mine: Sequence[int], before: Sequence[int]) -> bool:
    """The calls of a round, and little behind them: they may as well be the next rounds as added ones.

    Not where the others' call comes behind fewer, or more, of them than between any two of such calls before: then it
    would have been left out several times.
    """
    added = mine[: extra.count]
    if extra.count <= extra.agreeing or not set(added) <= set(before):
        return False
    wanted = mine[extra.count]
    *earlier, last = rounds([*before, wanted, *added], wanted, added[0])
    return not earlier or min(earlier) <= last <= max(earlier)


def _tells_little(skipped: Reading, mine: Sequence[int], before: Sequence[int]) -> bool:
    """All that agrees is what the rank called right before, once more, or as in a run: it may have added that."""
    agreeing = mine[: skipped.agreeing]
    again = 2 * len(agreeing) < skipped.count and list(before[-len(agreeing) :]) == list(agreeing)
    return again or _goes_on_with_a_run(skipped, mine, before)


def _goes_on_with_a_run(skipped: Reading, mine: Sequence[int], before: Sequence[int]) -> bool:
    """All that agrees is the call right before it, which comes several times in a row: as well the same run, longer."""
    last = before[-1:]
    return bool(last) and set(mine[: skipped.agreeing]) == set(last) and (last[0], last[0]) in set(pairwise(before))


def _tried(mine: list[int], due: list[int], known: int, before: list[int]) -> Iterator[Reading]:
    """The first reading of each kind which nothing contradicts, and the others by what agrees behind them."""
    for kind in (Kind.SKIPPED, Kind.EXTRA):
        for count in range(1, FARTHEST + 1):
            one = _reading(kind, count, *((mine, due[count:]) if kind is Kind.SKIPPED else (mine[count:], due)))
            if kind is Kind.SKIPPED and _is_turn_less(count, mine, due, before):
                one = Reading(kind, count, len(due) - count, whole=True)
            if one.whole and one.agreeing:
                yield one
                break
    for count in range(2, min(FARTHEST, len(mine), len(due)) + 1):
        if Counter(mine[:count]) == Counter(due[:count]) and mine[:count] != due[:count]:
            same = _same(mine[count:], due[count:])
            told = count <= known or same >= AS_OTHERS  # what the others make next is only expected
            if told and (same == len(mine) - count or same >= ENOUGH):
                yield Reading(Kind.MOVED, count, same + count, whole=True)
                break
    same = _same(mine[1:], due[1:])
    if same == len(mine) - 1 or same >= ENOUGH:
        yield Reading(Kind.OTHER, 1, same, whole=True)


def _is_turn_less(count: int, mine: list[int], due: list[int], before: list[int]) -> bool:
    """Whether turns are missing of a loop that both have left, and the others stand before all that these ranks made.

    No earlier round tells what comes behind the last call of the others.
    """
    behind = due[count:]
    return count <= len(behind) < len(mine) and mine[: len(behind)] == behind and are_turns(due[:count], before)


def _reading(kind: Kind, count: int, mine: list[int], due: list[int]) -> Reading:
    same = _same(mine, due)
    whole = same == min(len(mine), LOOKED_AT) or same >= ENOUGH
    return Reading(kind, count, same if whole else 0, whole)


def _same(mine: Sequence[int], due: Sequence[int]) -> int:
    same = 0
    while same < min(len(mine), len(due), LOOKED_AT) and mine[same] == due[same]:
        same += 1
    return same


def expected(known: Sequence[int], length: int) -> list[int]:
    """How an order of calls goes on, by what came after as many of its last calls as possible, the last time before.

    Where no call came twice, all of them may be one round, behind which the same calls come again.
    """
    calls = list(known)
    back = calls[::-1]
    alike = _alike_from_each(back)
    shift = max(range(1, len(back)), key=lambda shift: min(alike[shift], _CONTEXT), default=0)
    if len(set(calls)) == len(calls) > 0:
        return _copied(calls, 0, length)
    return _copied(calls, len(calls) - shift, length) if shift and alike[shift] else []


def _alike_from_each(calls: Sequence[int]) -> list[int]:
    """How many calls from each place on are those at the beginning: the Z-function, linear in the calls."""
    alike = [0] * len(calls)
    first = last = 0  # the part that reaches furthest, and is known to be like the beginning
    for place in range(1, len(calls)):
        same = min(alike[place - first], last - place) if place < last else 0
        while place + same < len(calls) and calls[same] == calls[place + same]:
            same += 1
        alike[place] = same
        if place + same > last:
            first, last = place, place + same
    return alike


def _copied(calls: list[int], source: int, length: int) -> list[int]:
    end = len(calls)
    for place in range(source, source + max(length, 0)):
        calls.append(calls[place])
    return calls[end:]


def habit(before: Sequence[int], own: int, usual: int) -> int:
    """How often an order of calls went on to `usual` from where it now goes on to `own`, which is new there."""
    steps = Counter(pairwise(before))
    return 0 if not len(before) or steps[before[-1], own] else steps[before[-1], usual]


def of_a_run(before: Sequence[int], own: int, usual: int) -> Reading:
    """The reading of two calls of which one continues a run, as of the batches of a validation, and one leaves it.

    Both were made before, so that neither is a call that only some ranks make; the one that leaves, not in this round.
    """
    if own not in before or usual not in before:
        return Reading(Kind.OTHER)
    steps = Counter(pairwise(before))
    stays, leaves = (own, usual) if steps[before[-1], own] else (usual, own)
    latest = len(before) - 1 - before[::-1].index(stays)
    if not steps[before[-1], stays] or steps[before[-1], leaves] or leaves in before[latest:]:
        return Reading(Kind.OTHER)
    return Reading(Kind.EXTRA if stays == own else Kind.SKIPPED, run=True)


def due(before: Sequence[Token], often: int = OFTEN) -> tuple[Token, int] | None:
    """The call that followed every time on the same calls as the last ones so far, and how often; None without a rule.

    `often`: how many times make a rule. As many of the last calls are looked at as it takes to tell: one call may come
    from several places of a round.
    """
    end, places = len(before), list(range(1, len(before)))
    for length in range(1, min(end, FARTHEST + 1)):
        places = [at for at in places if at >= length and before[at - length] == before[end - length]]
        following = {before[at] for at in places}
        if len(places) < often:
            return None
        if len(following) == 1:
            return following.pop(), len(places)
    return None


def swapped(row: Sequence[int], usual: Sequence[int], place: int) -> bool:
    """Two calls in the other order, which no earlier round had in that order."""
    one, two = list(row[place : place + 2]), list(usual[place : place + 2])
    return len(one) == 2 and one == two[::-1] and (one[0], one[1]) not in set(pairwise(usual))


def out_of_order(calls: Sequence[int], place: int) -> bool:
    """Whether the call at a place never came behind the one before it, behind which other calls had come."""
    before = list(calls[:place])
    behind = {other for one, other in pairwise(before) if one == before[-1]}
    return bool(behind) and calls[place] not in behind


def regular(calls: Sequence[int], place: int) -> bool:
    """Whether the call at a place is the one that came after the same calls before, as many of them as there are.

    Where as many of them went on in different ways, as within a run of one call, none of these is the rule.
    """
    back = list(calls[:place])[::-1]
    alike = [min(same, _CONTEXT) for same in _alike_from_each(back)[1:]]
    longest = max(alike, default=0)
    following = {back[shift] for shift, same in enumerate(alike) if same == longest > 0}
    return following == {calls[place]}
