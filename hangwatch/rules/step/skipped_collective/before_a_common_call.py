"""Calls that a few ranks left out before a call that all ranks reach."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.extra_calls import ExtraCalls, extra_calls, groups, sentences
from hangwatch.facts.mismatches import culprits_at, place_of
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def left_out_before_a_common_call(case: Case) -> Finding | None:
    """A minority came to the common call without the calls of most ranks, or one of two without its usual ones."""
    extra = extra_calls(case)
    usual = extra is not None and extra.made_before(case, extra.others)
    if extra is None or (extra.fits and not usual):
        return None
    if len(extra.ranks) < len(extra.others) or (len(extra.ranks) == len(extra.others) and not usual):
        return None
    return _left_out(case, extra, usual=usual)


def _left_out(case: Case, extra: ExtraCalls, *, usual: bool) -> Finding:
    calls = dict.fromkeys(extra.others, extra.paired)
    text = words.listed([name for name, _ in groups(extra.calls)])
    witnesses = []
    if len(extra.ranks) > len(extra.others):
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks made the call: {case.name(extra.ranks)}"))
    if usual:
        witnesses.append(Witness(Kind.HABIT, f"{case.name(extra.others)} made this call before"))
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,  # most may have left out what came before, and be a turn ahead
        f"{case.name(extra.others, capital=True)} left out {text}, which {case.name(extra.ranks)} called, and came to"
        f" {extra.paired.op}{words.at(place_of(case, extra.others[0], calls))} without it.",
        culprits=culprits_at(case, extra.others, calls),
        victims=extra.ranks,
        step=case.step_of(extra.others),
        evidence=sentences(case, extra),
        witnesses=tuple(witnesses),
        status=case.failed,
        awaited=extra.others,
    )
