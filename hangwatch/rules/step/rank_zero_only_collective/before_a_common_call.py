"""Calls that a few ranks issued before a call that all ranks reach."""

from __future__ import annotations

from hangwatch.facts.call_site import in_backward, path
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.extra_calls import ExtraCalls, extra_calls, groups, sentences
from hangwatch.facts.calls.mismatches import culprits_at
from hangwatch.facts.calls.skip_paths import past_by_an_error
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import first_uneven
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.ranks.sides import spread
from hangwatch.rules.finding import Finding

from .witnesses import behind, call_on_every_rank, condition_of, most_or_the_source


def issued_before_a_common_call(case: Case) -> Finding | None:
    """A minority, or one of two, issued calls at a place where none of the others has ever been."""
    extra = extra_calls(case) if first_uneven(case) is None else None
    if extra is None or len(extra.ranks) > len(extra.others) or extra.made_before(case, extra.others):
        return None
    if len(extra.ranks) == len(extra.others) and in_backward(extra.calls[0]):
        return None  # gradients are synchronised on all ranks, or on none
    others_say = most_or_the_source(case, extra.calls[0], extra.ranks, extra.others)
    if not others_say and past_by_an_error(case, path(extra.calls[0].frames)):
        return None  # rather the others met an error ahead of it
    return _alone(case, extra, others_say) if others_say or not extra.fits else None


def _alone(case: Case, extra: ExtraCalls, others_say: tuple[Witness, ...]) -> Finding:
    calls = dict.fromkeys(extra.ranks, extra.calls[0])
    way = condition_of(case, extra.ranks[0], path(extra.calls[0].frames))
    first, times = next(groups(case, extra))
    count = f", {times} times" if times > 1 else ""
    sites, maker = sites_of(case), extra.ranks[0]
    new = not any(sites.used_from(rank, extra.calls[0], maker) for rank in spread(extra.others))
    never = "never made" if new else f"did not make {'then' if times == 1 else 'so often'}"
    place = (Witness(Kind.PLACE, f"{case.name(extra.others)} never called from there"),) if new else ()
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,  # the records say that it was alone there, and not that the others were right
        f"{case.say(extra.ranks, 'is', 'are', capital=True)} alone in {first}{count},"
        f" which {case.name(extra.others)} {never}{behind(way)}; since then their calls are mispaired.",
        fix=call_on_every_rank(way),
        culprits=culprits_at(case, extra.ranks, calls),
        victims=extra.others,
        step=case.step_of(extra.ranks),
        evidence=sentences(case, extra),
        witnesses=(*place, *others_say),
        status=case.failed_status,
    )
