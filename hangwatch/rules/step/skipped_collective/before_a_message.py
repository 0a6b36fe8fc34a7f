"""A collective left out by ranks that wait for messages of those who wait in it: a circle, but not one of messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import conditional, evidence_of, skip_path, the_only, ways_to
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.messages.own_order import gone_by
from hangwatch.facts.messages.peer_totals import said_unserved
from hangwatch.facts.messages.rounds import amid_its_turn, left_habit
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass, Certainty, Collective
from hangwatch.proof.graph import Need
from hangwatch.rules.finding import Finding


@dataclass(frozen=True)
class _LeftOut:
    """`waiting` are in `call`, for which they need `absent`: those wait for messages of them."""

    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    call: Collective
    by_order: bool  # in each of their steps before, those absent made it ahead of the call in which they wait


def left_out_before_a_message(case: Case) -> Finding | None:
    """Few ranks are in their usual sends or receives, and most of the others in a collective that needs them.

    Where each side kept its number of messages, those few have gone by the collective, or the others are in one too
    many: the majority and the source say which. So do, however many they are, the earlier steps of those few.
    """
    found = _left_out(case)
    if found is None or (left_habit(case) is not None and not found.by_order):
        return None
    ways = ways_to(case, found.call)
    if any(way.asks == "rank" for way in ways):
        return None  # behind a rank check the call is that of its ranks
    own = conditional(ways)
    witnesses = tuple(_witnesses(case, found, own))
    blames = case.weigh(witnesses) is not Certainty.UNDETERMINED
    few, others = case.name(found.absent), case.name(found.waiting)
    entry, there = case.blocked[found.absent[0]], case.blocked[found.waiting[0]]
    made = f"{call_words(there)}{words.at(there.where)}"
    here = f"{call_words(entry)}{words.at(entry.where)}"
    they, them = ("it is", "it") if len(found.absent) == 1 else ("they are", "them")
    summary = (
        f"{words.capital(few)} left out {made}{skip_path(own)}: {they} in {here} already, while {others}"
        f" {words.verb(len(found.waiting), 'waits', 'wait')} for {them} there."
        if blames
        else f"{words.capital(others)} {words.verb(len(found.waiting), 'is', 'are')} in {made}, and {few} in {here}:"
        " each side waits for the other, and which of them is wrong is not known."
    )
    return Finding(
        "skipped-collective",
        Certainty.LIKELY if blames else Certainty.UNDETERMINED,
        summary,
        fix="" if blames else "see which side went another way there, and let all ranks decide it alike",
        culprits=case.culprits(found.absent, the_only(own)) if blames else (),
        victims=found.waiting if blames else tuple(case.blocked),
        step=case.ranks[found.absent[0]].step,
        evidence=(*evidence_of(own), *_counted(case, found.absent[: words.SHOWN])),
        witnesses=witnesses,
        awaited=found.absent,
    )


def _counted(case: Case, ranks: tuple[int, ...]) -> Iterator[str]:
    """How many messages they made with the peers for which they wait, where these made another number."""
    for rank in ranks:
        call = case.blocked[rank].call
        if call is not None and (said := said_unserved(case, call, rank)):
            yield said


def _left_out(case: Case) -> _LeftOut | None:
    needs: dict[int, Need] = {}
    waiting: dict[int, list[int]] = {}
    for rank, entry in case.blocked.items():
        if not entry.to_a_peer and entry.need is not None:
            needs[id(entry.need)] = entry.need
            waiting.setdefault(id(entry.need), []).append(rank)
    found = (_in(case, need, tuple(waiting[key]), alone=len(needs) == 1) for key, need in needs.items())
    return next((each for each in found if each is not None), None)


def _in(case: Case, need: Need, waiting: tuple[int, ...], *, alone: bool) -> _LeftOut | None:
    """In one collective; that most ranks of the job wait in it counts only where all but a few do."""
    absent, call = need.absent, case.blocked[waiting[0]].call
    usual = all(_awaits(case, rank, waiting) and sites_of(case).regular(rank) for rank in absent)
    if call is None or not absent or not usual or need.never:
        return None
    most = alone and len(absent) < len(waiting) and len(absent) + len(waiting) == len(case.blocked)
    by_order = all(gone_by(case, rank, call) for rank in absent)
    if not (most or by_order) or any(amid_its_turn(case, rank, call.group) for rank in absent):
        return None
    return _LeftOut(waiting, absent, call, by_order)


def _awaits(case: Case, rank: int, others: tuple[int, ...]) -> bool:
    entry = case.blocked.get(rank)
    return entry is not None and entry.to_a_peer and entry.need is not None and {*entry.need.absent} <= {*others}


def _witnesses(case: Case, found: _LeftOut, ways: tuple[Bypass, ...]) -> list[Witness]:
    sites = sites_of(case)
    known = any(sites.used(rank, found.call) for rank in (*found.waiting, *found.absent))
    place = "that call had been made in earlier steps" if known else "no rank had made that call before"
    told = [Witness(Kind.PLACE, place, agrees=known)]
    if len(found.waiting) > len(found.absent):
        told.insert(0, Witness(Kind.MAJORITY, f"most ranks made that call: {case.name(found.waiting)}"))
    steps = min(gone_by(case, rank, found.call) for rank in found.absent)
    if steps:
        few, entry = case.name(found.absent), case.blocked[found.absent[0]]
        ahead = f"ahead of {call_words(entry)}{words.at(entry.where)}"
        told.append(
            Witness(Kind.HABIT, f"{few} made that call {ahead} in each of {steps} steps before, and not in this one")
        )
    if ways:
        told.append(Witness(Kind.SOURCE, "what leads past that call is a rank's own, and no condition on the rank"))
    return told
