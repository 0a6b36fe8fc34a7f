"""Calls that a few ranks issued before a call that all ranks come to."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.batches import first_uneven
from hangwatch.facts.case import Case
from hangwatch.facts.extra_calls import ExtraCalls, extra_calls, groups, sentences
from hangwatch.facts.mismatches import place_of
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding


def issued_before_a_common_call(case: Case) -> Finding | None:
    """A minority, or one of two, issued calls at a place where none of the others has ever been."""
    extra = extra_calls(case) if first_uneven(case) is None else None
    if extra is None:
        return None
    if len(extra.ranks) > len(extra.others) or extra.made_before(case, extra.others):
        return None
    return _alone(case, extra)


def _alone(case: Case, extra: ExtraCalls) -> Finding:
    calls = dict.fromkeys(extra.ranks, extra.calls[0])
    first, times = next(groups(extra.calls))
    guarded = all(case.ranks[rank].now.guard == "rank" for rank in extra.ranks if rank in case.ranks)
    witnesses = [Witness(Kind.PLACE, f"{case.name(extra.others)} never called from there")]
    if len(extra.ranks) < len(extra.others):
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks made no such call: {case.name(extra.others)}"))
    if guarded:
        witnesses.append(Witness(Kind.SOURCE, "the source leads there only under a condition on the rank"))
    certainty = case.weigh(witnesses)
    ended = case.any_rank_failed
    sure = guarded and not ended
    count = f", {times} times" if times > 1 else ""
    return Finding(
        "rank-zero-only-collective",
        certainty if sure or certainty is not Certainty.PROVEN else Certainty.LIKELY,
        f"{case.name(extra.ranks, capital=True)} {words.verb(len(extra.ranks), 'is', 'are')} alone in {first}{count},"
        f" which {case.name(extra.others)} never called; it was paired with {extra.paired.op} of"
        f" {case.name(extra.others)}{words.at(place_of(case, extra.others[0], {extra.others[0]: extra.paired}))}.",
        culprits=tuple(
            case.ranks[rank].culprit(place_of(case, rank, calls)) for rank in extra.ranks if rank in case.ranks
        ),
        victims=extra.others,
        step=next(
            (case.ranks[rank].step for rank in extra.ranks if rank in case.ranks), case.furthest_step(case.ranks)
        ),
        evidence=sentences(case, extra),
        witnesses=tuple(witnesses),
        status=Status.FAILED if ended else None,
        awaited=extra.ranks,
    )
