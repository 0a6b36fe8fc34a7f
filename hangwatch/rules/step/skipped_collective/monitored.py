"""A monitored barrier that gave up: it names the ranks that did not come, and their boards say where they had gone."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import site
from hangwatch.facts.calls.last_calls import end_sentences, endings_of
from hangwatch.facts.case import Case
from hangwatch.facts.rank_end import Why, gave_up_on
from hangwatch.model import Certainty, Collective, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def passed_a_monitored_barrier(case: Case) -> Finding | None:
    """The few ranks for which rank 0 waited in vain were in a later step, and had come to that call before."""
    found = next(((view, late) for view in case if (late := gave_up_on(view)) is not None), None)
    if found is None:
        return None
    waiter, late = found
    ranks = tuple(rank for rank in late.ranks if rank in case.ranks)
    call, size = _its_call(waiter), len(case.ranks)
    if call is None or len(ranks) < len(late.ranks) or 2 * len(ranks) > size:
        return None  # where most are missing, rank 0 may be alone in a call that no other rank makes
    if not all(_has_passed(case, waiter, case.ranks[rank], call) for rank in ranks):
        return None
    limit, at = words.duration(late.timeout_s), words.at(user_frame(call.frames))
    step, names = words.step(waiter.step), case.name(ranks)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} skipped monitored_barrier{at} in {step} and went on to"
        f" {words.step(case.furthest_step(ranks))}; rank {waiter.rank} waited there for {limit}, and gave up.",
        culprits=case.culprits(ranks),
        victims=tuple(rank for rank in case.ranks if rank not in ranks),
        step=waiter.step,
        evidence=(f"{names} made that call in earlier steps, and not in {step}", *end_sentences(case)),
        status=Status.FAILED,
    )


def _its_call(waiter: RankView) -> Collective | None:
    """The monitored_barrier in which it gave up: the last one that it has made."""
    calls = waiter.reading.calls if waiter.reading is not None else ()
    return next((call for call in reversed(calls) if call.op == "monitored_barrier"), None)


def _has_passed(case: Case, waiter: RankView, view: RankView, call: Collective) -> bool:
    """It did not end by itself, is steps ahead of that call, made it before, and has no record of it in that step."""
    end, reading = endings_of(case).get(view.rank), view.reading
    now, then = view.step.step, waiter.step.step
    if (end is not None and end.why is Why.ITSELF) or reading is None or now is None or then is None or now <= then:
        return False
    steps = [each.step for each in reading.calls if each.op == call.op and site(each) == site(call)]
    return bool(steps) and call.step is not None and call.step not in steps
