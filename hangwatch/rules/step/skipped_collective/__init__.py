"""Ranks that left out a collective that the others issued in the same step."""

from __future__ import annotations

from hangwatch import words
from hangwatch.catalogue.step import OUT_OF_CACHES
from hangwatch.facts.calls.queues import assessed, departure_of
from hangwatch.facts.calls.skip_paths import (
    by_a_cache,
    condition,
    evidence_of,
    only_by_a_setting,
    passed_at,
    past_any_call,
    past_some_call,
    skip_path,
    the_only,
)
from hangwatch.facts.case import Case
from hangwatch.facts.differences.parting import Left, Parting, counted, parting
from hangwatch.facts.differences.unreduced import left_a_loop, reduced_elsewhere
from hangwatch.model import Certainty
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.skipped_collective.by_order import skipped_by_order, skipped_by_site
from hangwatch.rules.step.skipped_collective.by_place import earlier_than_ever
from hangwatch.rules.step.skipped_collective.in_a_round import left_out_of_a_round
from hangwatch.rules.step.skipped_collective.in_long_step import left_out_with_its_step

_ALIKE = (
    "give what that condition asks for one value on all ranks: decide it on rank 0 and broadcast it, or compare it at"
    " the start (all_gather_object) and raise"
)


def skipped_collective(case: Case) -> Finding | None:
    """In one step a rank issued fewer collectives than its peers."""
    found = parting(case)
    if found is None:
        by_sites = left_out_with_its_step(case) or skipped_by_site(case) or skipped_by_order(case)
        if by_sites is not None or _tells_by_order(case):
            return by_sites
        return left_out_of_a_round(case) or earlier_than_ever(case)
    if not case.in_trouble:
        return None
    if found.how is not Left.SKIPPED or not found.who:
        return _one_side_differs(case, found)
    what = f"skipped {found.call}" if found.call else f"issued fewer collectives than {_peers(case, found)}"
    any_call = past_any_call(case) if not found.call else None  # which one was left out is not known
    setting = only_by_a_setting(case, found.lines) if found.lines and not found.ways else None
    led = f", past which only {condition(setting)} leads" if setting is not None else ""
    where = next((way.where for way in (any_call, setting) if way is not None), None) or the_only(found.ways)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY if _may_have_called_it(case, found) else case.weigh(found.witnesses),
        f"{case.name(found.all_who, capital=True)} {what} {found.when}{skip_path(found.ways)}{led};"
        f" {_since_then(case, found)}.",
        fix=OUT_OF_CACHES if by_a_cache(found.ways) else _ALIKE if setting is not None else "",
        culprits=case.culprits(found.all_who, where),
        step=found.step,
        evidence=(
            counted(case, found),
            *((past_some_call(any_call),) if any_call is not None else evidence_of(found.ways)),
            *_now(case, case.ranks.get(found.who[0])),
        ),
        witnesses=found.witnesses,
    )


def _since_then(case: Case, found: Parting) -> str:
    """Later calls take the place of those that were left out, unless none came in that group."""
    divergence = found.divergence
    now = (None, found.step.step)  # those that are in a later step wait in a later call
    asked = (rank for rank in case.blocked if rank in divergence.counts and case.ranks[rank].step.step in now)
    needs = (case.blocked[rank].need for rank in asked)
    waits = any(need.group == divergence.group and {*found.who} <= {*need.absent} for need in needs if need is not None)
    if waits:
        return f"the others still wait for {words.verb(len(found.all_who), 'it', 'them')} there"
    return f"since then {words.verb(len(found.all_who), 'its', 'their')} calls are mispaired"


def _may_have_called_it(case: Case, found: Parting) -> bool:
    """One of the ranks has ended within that step, perhaps before it came to the call; or a backward reduced nothing.

    That a rank was in a backward is seen by its gradients: where another line made some, one may have had none; and
    where their sizes are all alike, calls of one backward look like several of them.
    """
    views = case.views(found.who)
    unsure = any(reduced_elsewhere(case, rank, found) or left_a_loop(case, rank, found) for rank in found.who)
    return unsure or any((view.dead or view.raised) and view.step.step == found.step.step for view in views)


def _peers(case: Case, found: Parting) -> str:
    """`the others (0 instead of 6)`; in a group that not all belong to, its other members by name."""
    counts = found.divergence.counts
    peers = sorted(rank for rank in counts if rank not in found.who)
    named = "the others" if len(counts) >= len(case.ranks) else case.name(peers)
    return f"{named} ({counts[found.who[0]]} instead of {max(counts.values())})"


def _now(case: Case, view: RankView | None) -> tuple[str, ...]:
    if view is None or view.where is None:
        return ()
    stands = "ended" if view.dead or case.stood else "is now"
    return (f"rank {view.rank} {stands} at {words.place(view.where)}, in {words.step(view.step) or 'an unknown step'}",)


def _one_side_differs(case: Case, found: Parting) -> Finding | None:
    """The ledgers differ, and nothing says which side left the path: blame no rank."""
    if not case.blocked or _tells_by_order(case):
        return None
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"The ranks issued different numbers of collectives: {counted(case, found)}; which side is wrong is not known.",
        victims=tuple(case.blocked),
        step=found.step,
        evidence=(counted(case, found), *((passed_at(found.ways, found.call),) if found.ways and found.call else ())),
        witnesses=found.witnesses,
        awaited=tuple(case.ranks),
    )


def _tells_by_order(case: Case) -> bool:
    """The order of the calls of all ranks shows which of them left some out, where their numbers do not."""
    queued = assessed(case).found if departure_of(case) is not None else None
    return queued is not None and queued.cause == "skipped-collective"
