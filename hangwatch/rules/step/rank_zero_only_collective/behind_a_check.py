"""A job that its backend brought down while few ranks stood behind a rank check, in a call that others passed by."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.last_calls import Last, brought_down, end_sentences, last_calls
from hangwatch.facts.calls.skip_paths import condition
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import first_uneven
from hangwatch.facts.differences.parting import parting
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Within

from .witnesses import call_on_every_rank, condition_of, only_by_rank


def ended_behind_a_rank_check(case: Case) -> Finding | None:
    """At the end few ranks stood in a call under a condition on the rank, and all others in calls under none.

    What C++ code issues, such as DDP's buffers and gradients, leaves no record that could tell the calls apart: the
    source does. Programs let ranks wait for rank 0 in a guarded barrier, and rank 0 joins them later: those are no
    sign.
    """
    lasts = last_calls(case)
    if not brought_down(case) or len(lasts) < len(case.ranks) or not _one_group(case):
        return None
    if parting(case) is not None or first_uneven(case) is not None:
        return None
    alone = tuple(rank for rank in lasts if case.ranks[rank].now.guard == "rank")
    others = tuple(rank for rank in lasts if case.ranks[rank].now.guard == "none")
    if not alone or 2 * len(alone) > len(lasts) or len(alone) + len(others) < len(lasts):
        return None
    if any(lasts[rank].site.kind == "barrier" for rank in alone) or not _apart(lasts, alone, others):
        return None
    return _found(case, lasts, alone, others)


def _one_group(case: Case) -> bool:
    """All calls are of one group: none of them can belong to ranks that are meant to be among themselves."""
    return sum(len(group.members) > 1 for group in case.ledger.groups.values()) == 1


def _apart(lasts: dict[int, Last], alone: tuple[int, ...], others: tuple[int, ...]) -> bool:
    return {lasts[rank].site.lines for rank in alone}.isdisjoint(lasts[rank].site.lines for rank in others)


def _found(case: Case, lasts: dict[int, Last], alone: tuple[int, ...], others: tuple[int, ...]) -> Finding:
    view, last, theirs = case.ranks[alone[0]], lasts[alone[0]], lasts[others[0]]
    buffers = Within.BUFFERS in view.now.within
    way = condition_of(case, view.rank, last.site.lines)
    check = condition(way) if way is not None else "a check of the rank"
    call = "the model's forward, with its broadcast of buffers" if buffers else last.name or "a collective"
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,
        f"{case.say(alone, 'was', 'were', capital=True)} alone in {call}{words.at(last.where)}, behind {check}; it was"
        f" paired with {theirs.name or 'a collective'} of {case.name(others)}{words.at(theirs.where)}.",
        fix=call_on_every_rank(way, through_ddp=buffers),
        culprits=case.culprits_at(alone, lambda view: lasts[view.rank].where),
        victims=others,
        step=view.step,
        evidence=end_sentences(case),
        witnesses=(
            only_by_rank(last.where),
            Witness(Kind.SOURCE, f"no condition on the rank leads to {words.place(theirs.where)}"),
        ),
        status=Status.FAILED,
    )
