"""Few ranks still wait in a call that most are past: rather those few made a call too many."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.turns import drew_alike, fewer_turns, passed_call_site
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding


def made_more_calls(case: Case) -> Finding | None:
    """Most ranks are past the loop, or past the call, in which a few still wait."""
    short, gone_by = fewer_turns(case), passed_call_site(case)
    if short is not None and drew_alike(case, short) and len(short.left) > len(short.inside):
        return _one_too_many(case, list(short.inside), short.left)
    if short is None and gone_by is not None and len(gone_by.past) > len(gone_by.behind):
        return _one_too_many(case, list(gone_by.behind), gone_by.past)
    return None


def _one_too_many(case: Case, odd: list[int], others: tuple[int, ...]) -> Finding:
    """Most are past the place where a few still wait: rather those made a call too many than all others too few."""
    first = case.ranks[odd[0]]
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,
        f"{case.name(odd, capital=True)} made more collectives than the others and"
        f" {words.verb(len(odd), 'is', 'are')} still in {first.now.call or 'one'}{words.at(first.where)};"
        f" {case.name(others)} {words.verb(len(others), 'is', 'are')} past it{words.at(case.usual_place(others))}.",
        culprits=case.culprits(odd),
        victims=tuple(rank for rank in others if rank in case.blocked),
        step=first.step,
        evidence=(f"{case.name(others)} are where all ranks come, and the calls paired there do not belong together",),
        status=None if case.blocked else Status.FAILED,
        awaited=tuple(odd),
    )
