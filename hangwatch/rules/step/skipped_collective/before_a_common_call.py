"""Calls that a few ranks left out before a call that all ranks reach."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.case import Case
from hangwatch.facts.common_order import OutOfOrder, left_by_most, order_kept
from hangwatch.facts.extra_calls import ExtraCalls, extra_calls, groups, sentences
from hangwatch.facts.mismatches import culprits_at, place_of
from hangwatch.facts.skip_paths import only_by_an_error, past_by_an_error, skip_path, the_only
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass, Certainty
from hangwatch.rules.finding import Finding


def left_out_before_a_common_call(case: Case) -> Finding | None:
    """A minority came to the common call without the calls of most ranks, or one of two without its usual ones.

    A call that only an error leads past counts as usual: that the other rank made it is the rule. Where few made the
    call that had always come there, it is the many who left that one out, and are a turn ahead.
    """
    extra = extra_calls(case)
    if extra is None or len(extra.ranks) < len(extra.others):
        return None
    most = left_by_most(case)
    if most is not None and (most.ranks, most.others) == (extra.ranks, extra.others):
        return _left_out_by_most(case, most)
    usual, errors = extra.made_before(case, extra.others), past_by_an_error(case, path(extra.calls[0].frames))
    if (extra.fits or len(extra.ranks) == len(extra.others)) and not (usual or errors):
        return None
    return _left_out(case, extra, errors, usual=usual)


def _left_out_by_most(case: Case, found: OutOfOrder) -> Finding:
    calls = dict.fromkeys(found.ranks, found.reached)
    text = words.listed([name for name, _ in groups(found.left_out)])
    reached = f"{found.reached.op}{words.at(place_of(case, found.ranks[0], calls))}"
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,  # most ranks did alike: their way may be the one that is meant
        f"{case.name(found.ranks, capital=True)} left out {text}, which {case.name(found.others)}"
        f" made as in every round before, and came to {reached} without it.",
        culprits=culprits_at(case, found.ranks, calls),
        victims=found.others,
        step=case.step_of(found.ranks),
        witnesses=(Witness(Kind.HABIT, order_kept(case, found)),),
        status=case.failed,
        awaited=found.ranks,
    )


def _left_out(case: Case, extra: ExtraCalls, errors: tuple[Bypass, ...], *, usual: bool) -> Finding:
    calls = dict.fromkeys(extra.others, extra.paired)
    text = words.listed([name for name, _ in groups(extra.calls)])
    at, witnesses = the_only(errors), []
    if len(extra.ranks) > len(extra.others):
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks made the call: {case.name(extra.ranks)}"))
    if usual:
        witnesses.append(Witness(Kind.HABIT, f"{case.name(extra.others)} made this call before"))
    if errors:
        witnesses.append(Witness(Kind.SOURCE, only_by_an_error(errors)))
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,  # most may have left out what came before, and be a turn ahead
        f"{case.name(extra.others, capital=True)} left out {text}, which {case.name(extra.ranks)} called, and came to"
        f" {extra.paired.op}{words.at(place_of(case, extra.others[0], calls))} without it{skip_path(errors)}.",
        culprits=case.culprits(extra.others, at) if at is not None else culprits_at(case, extra.others, calls),
        victims=extra.ranks,
        step=case.step_of(extra.others),
        evidence=sentences(case, extra),
        witnesses=tuple(witnesses),
        status=case.failed,
        awaited=extra.others,
    )
