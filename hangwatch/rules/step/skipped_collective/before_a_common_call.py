"""Calls that a few ranks left out before a call that all ranks reach."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.calls.extra_calls import ExtraCalls, extra_calls, groups, sentences
from hangwatch.facts.calls.mismatches import culprits_at, place_of
from hangwatch.facts.calls.skip_paths import only_by_an_error, past_by_an_error, skip_path, the_only
from hangwatch.facts.case import Case
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass, Certainty
from hangwatch.rules.finding import Finding
from hangwatch.rules.undetermined import of_either_side


def left_out_before_a_common_call(case: Case) -> Finding | None:
    """A minority came to the common call without the calls of most ranks, or one of two without its usual ones.

    A call that only an error leads past counts as usual: that the other rank made it is the rule.
    """
    extra = extra_calls(case)
    if extra is None or len(extra.ranks) < len(extra.others):
        return None
    usual, errors = extra.made_before(case, extra.others), past_by_an_error(case, path(extra.calls[0].frames))
    if extra.fits and not (usual or errors):
        return None
    if len(extra.ranks) == len(extra.others) and not (errors or extra.were_due(case)):
        return _either(case, extra)
    return _left_out(case, extra, errors, usual=usual)


def _either(case: Case, extra: ExtraCalls) -> Finding:
    """As many made the calls as did not, and nothing tells what is usual: all that comes of it says no more."""
    text = words.listed([name for name, _ in groups(case, extra)])
    paired = f"{extra.paired.op}{words.at(place_of(case, extra.others[0], dict.fromkeys(extra.others, extra.paired)))}"
    made = f"{case.name(extra.ranks, capital=True)} called {text} before {paired}"
    return replace(
        of_either_side(f"{made}, and {case.name(extra.others)} did not"),
        victims=(*extra.ranks, *extra.others),  # of one of them: blaming either for what came of it explains nothing
        step=case.step_of(extra.others),
        evidence=sentences(case, extra),
        status=case.failed_status,
        awaited=(*extra.ranks, *extra.others),
    )


def _left_out(case: Case, extra: ExtraCalls, errors: tuple[Bypass, ...], *, usual: bool) -> Finding:
    calls = dict.fromkeys(extra.others, extra.paired)
    text = words.listed([name for name, _ in groups(case, extra)])
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
        status=case.failed_status,
    )
