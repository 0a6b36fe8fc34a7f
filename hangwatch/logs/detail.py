"""What torch's wrapper says that compares calls before they are made (TORCH_DISTRIBUTED_DEBUG=DETAIL).

It numbers the ranks of the group. The first one in each text is the reporter's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Culprit, Frame, Judgement, Stage, Status, Verdict
from hangwatch.ranks.ledger import family

from .model import Failure, Logs

_DETECTED = "Detected mismatch between collectives on ranks"
_RANK = re.compile(
    r"Rank (\d+) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(\d+), )?OpType=(\w+)"
    r"(?:, TensorShape=\[([\d, ]*)\])?(?:, TensorDtypes=(\w+))?"
)


@dataclass(frozen=True)
class _Call:
    """What a rank was about to call."""

    op: str
    number: int | None
    shape: str | None
    dtype: str

    def __str__(self) -> str:
        of = "" if self.shape is None else f" of [{self.shape}]{f' {self.dtype.lower()}' if self.dtype else ''}"
        return f"{self.op}{of}"


def judged(ends: Iterable[Failure], logs: Logs) -> Judgement | None:
    """The verdict on calls that do not match, where all that failed tell of one; a reporter is not the one to blame."""
    told = {each.rank: each for each in ends}
    if not told or not all(_DETECTED in each.text for each in told.values()):
        return None
    calls = dict(call for each in told.values() for call in _calls(each.text))
    sides = _sides(calls)
    if len(sides) < 2:
        return None
    ranks = _ranks(told)
    if not calls.keys() <= ranks.keys():
        return _of_a_group(sides, calls, told, logs)
    calls = {ranks[place]: call for place, call in calls.items()}
    sides = _sides(calls)
    few = sides[-1] if len(sides[-1]) < len(sides[-2]) else []
    blamed = few or sorted(calls)
    return Judgement(
        Status.FAILED,
        Stage.STEP,
        Verdict(
            cause="collective-mismatch",
            certainty=Certainty.LIKELY if few else Certainty.UNDETERMINED,
            summary=f"{_what(calls, sides)}: {words.listed(_told(sides, calls, told))}.",
            fix=cause("collective-mismatch").fix,
            culprits=tuple(Culprit(rank, where=_where(rank, told)) for rank in blamed),
            victims=tuple(sorted(({*calls, *told} | {each.rank for each in logs.timeouts}) - {*blamed})),
            evidence=(_compared(told),),
        ),
    )


def _of_a_group(sides: list[list[int]], calls: dict[int, _Call], told: dict[int, Failure], logs: Logs) -> Judgement:
    """The verdict where it is not known which ranks of the job those of the group are."""
    listed = words.listed(
        f"{words.ranks(side)} of the group {words.verb(len(side), 'calls', 'call')} {calls[side[0]]}" for side in sides
    )
    entry = cause("collective-mismatch")
    return Judgement(
        Status.FAILED,
        Stage.STEP,
        Verdict(
            cause=entry.id,
            certainty=Certainty.UNDETERMINED,
            summary=f"{_what(calls, sides)}: {listed}; no line tells which ranks of the job all of these are.",
            fix=entry.fix,
            victims=tuple(sorted({*told} | {each.rank for each in logs.timeouts})),
            evidence=(_compared(told),),
        ),
    )


def _compared(told: dict[int, Failure]) -> str:
    return f"torch compared the calls before it made them, and said so on {words.ranks(sorted(told))}"


def _ranks(told: dict[int, Failure]) -> dict[int, int]:
    """The rank of each place in the group that is known; none where reporters are of several groups.

    Groups are in the order of ranks: below one whose place is its rank, all are so.
    """
    found: dict[int, int] = {}
    for rank, each in told.items():
        place = next((place for place, _ in _calls(each.text)), None)
        if place is None or found.setdefault(place, rank) != rank:
            return {}
    alike = max((place for place, rank in found.items() if place == rank), default=-1)
    return {**{place: place for place in range(alike)}, **found}


def _calls(text: str) -> Iterator[tuple[int, _Call]]:
    for found in _RANK.finditer(text):
        op = found[3].lower()
        yield int(found[1]), _Call(family(op) or op, int(found[2]) if found[2] else None, found[4], found[5] or "")


def _sides(calls: dict[int, _Call]) -> list[list[int]]:
    """The ranks that call alike, most of them first."""
    found: dict[_Call, list[int]] = {}
    for rank, call in sorted(calls.items()):
        found.setdefault(call, []).append(rank)
    return sorted(found.values(), key=len, reverse=True)


def _what(calls: dict[int, _Call], sides: list[list[int]]) -> str:
    numbers = {call.number for call in calls.values()}
    number = next(iter(numbers)) if len(numbers) == 1 else None
    ops = {calls[side[0]].op for side in sides}
    what = "call different collectives" if len(ops) > 1 else f"give {ops.pop()} different sizes or types"
    return f"The ranks {what}{f' as number {number}' if number is not None else ''}"


def _told(sides: list[list[int]], calls: dict[int, _Call], told: dict[int, Failure]) -> Iterator[str]:
    for side in sides:
        where = next((place for rank in side if (place := _where(rank, told)) is not None), None)
        yield f"{words.ranks(side)} {words.verb(len(side), 'calls', 'call')} {calls[side[0]]}{words.at(where)}"


def _where(rank: int, told: dict[int, Failure]) -> Frame | None:
    return told[rank].where if rank in told else None
