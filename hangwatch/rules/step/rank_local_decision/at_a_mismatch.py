"""Two calls under one number, of which a condition on a value leads to one, and only to that one."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import Path, path
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.mismatches import MOST_PAIRED, Mismatch, all_alike, mispaired, shape
from hangwatch.facts.calls.skip_paths import condition, every_so_many_turns, own_condition
from hangwatch.facts.case import Case
from hangwatch.model import Bypass, Certainty, Collective
from hangwatch.ranks.sides import odd_of, spread
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.rank_local_decision.advice import advice
from hangwatch.stacks.frames import user_frame


@dataclass(frozen=True)
class _Decided:
    """`made` called behind the condition `way`, `without` called something else that is not behind it."""

    way: Bypass
    made: tuple[int, ...]
    without: tuple[int, ...]


def decided_at_a_mismatch(case: Case) -> Finding | None:
    """Ranks parted in two calls at a condition, and are at one point of the program before it."""
    found = mispaired(case)
    if found is None or len(found.calls) < len(found.group.members):
        return None
    decided = _decided(case, found)
    if decided is None or not _alike_before(case, found, decided):
        return None
    made, without = (_called(case, found, ranks) for ranks in (decided.made, decided.without))
    odd = odd_of(decided.made, decided.without)
    failed = any(view.dead or view.raised for view in case.views(found.calls))
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"{condition(decided.way)} came out differently on the ranks: {made}, and {without}.",
        fix=advice((decided.way,)),
        culprits=case.culprits(odd, decided.way.where),
        victims=tuple(rank for rank in found.calls if rank not in odd),
        step=case.furthest_step(odd or found.calls),
        evidence=(
            f"collective {found.seq} of group {found.group.name}: {made}, and {without}",
            "the calls of that group before it, as far as they were compared, came from the same lines on all ranks",
        ),
        status=case.failed_status if failed else None,
        awaited=tuple(found.calls),
    )


def _decided(case: Case, found: Mismatch) -> _Decided | None:
    """The one condition, where the calls came by two ways and it stands on one of them.

    It leads to a call that ranks of both sides had made before. A check is meant to hold always: where the other call
    comes every so many turns, their counters may differ instead.
    """
    sides: dict[Path, list[int]] = {}
    for rank, call in found.calls.items():
        sides.setdefault(path(call.frames), []).append(rank)
    ways = {lines: way for lines in sides if lines and (way := own_condition(case, lines)) is not None}
    if len(sides) != 2 or len(ways) != 1:
        return None
    ((behind, way),) = ways.items()
    made = tuple(sides.pop(behind))
    ((other, without),) = sides.items()
    by_counters = way.asks == "check" and every_so_many_turns(case, other)
    usual = all(sites_of(case).used(rank, found.calls[made[0]]) for rank in (made[0], without[0]))
    return _Decided(way, made, tuple(without)) if usual and not by_counters else None


def _alike_before(case: Case, found: Mismatch, decided: _Decided) -> bool:
    """All calls of that group before it came from the same lines on all ranks, as far as they are on record."""
    asked = [*spread(decided.made), *spread(decided.without)]
    numbers = range(max(found.seq - MOST_PAIRED, 1), found.seq)
    compared = [calls for n in numbers if len(calls := case.ledger.under(found.group.name, n, asked)) > 1]
    return bool(compared) and all(all_alike(calls.values()) for calls in compared)


def _called(case: Case, found: Mismatch, ranks: tuple[int, ...]) -> str:
    """`rank 1 called gather of 256 elements (train.py:22)`."""
    call: Collective = found.calls[ranks[0]]
    return f"{case.name(ranks)} called {shape(call)}{words.at(user_frame(call.frames))}"
