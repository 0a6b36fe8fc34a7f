"""A rank stood in code of the program until rank 0 gave up waiting for it in a monitored barrier, which names it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.last_calls import end_sentences, endings_of, last_call
from hangwatch.facts.own_code import IN_CODE, how_stuck
from hangwatch.facts.rank_end import Why, gave_up_on
from hangwatch.model import Certainty, Status
from hangwatch.ranks.late_at_barrier import Late
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding


def late_at_a_monitored_barrier(case: Case) -> Finding | None:
    """The few ranks that had not come stood in their own code, in the same step or before it."""
    found = next(((view, missing) for view in case if (missing := gave_up_on(view)) is not None), None)
    if found is None:
        return None
    waiter, missing = found
    late = case.views(missing.ranks)
    if not late or len(late) < len(missing.ranks) or 2 * len(late) > len(case.ranks):
        return None
    if not all(_stood_in_code(case, view) and not _ahead(view, waiter) for view in late):
        return None
    return _finding(case, waiter, missing, late)


def _stood_in_code(case: Case, view: RankView) -> bool:
    """It raised nothing, and its last stack is in the program's own code, in no call that communicates."""
    end = endings_of(case).get(view.rank)
    from_outside = end is None or end.why is Why.LAUNCHER
    return from_outside and not view.over and view.now.doing in IN_CODE and view.where is not None


def _ahead(view: RankView, waiter: RankView) -> bool:
    now, then = view.step.step, waiter.step.step
    return now is not None and then is not None and now > then


def _finding(case: Case, waiter: RankView, missing: Late, late: list[RankView]) -> Finding:
    first, ranks, call = late[0], tuple(view.rank for view in late), last_call(case, waiter)
    function = first.where.function if first.where is not None else "?"
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} stood in {function}{words.at(first.where)}: {how_stuck(first)};"
        f" rank {waiter.rank} waited for {words.duration(missing.timeout_s)} for {words.verb(len(late), 'it', 'them')}"
        f" in monitored_barrier{words.at(call.where if call is not None else None)}, and gave up.",
        fix="mend what blocks there; if it may take so long, raise timeout= of the barrier",
        culprits=tuple(view.culprit() for view in late),
        victims=case.victims(ranks),
        step=first.step,
        evidence=(
            *(f"rank {view.rank} stood at {words.place(view.where)}, in no collective" for view in late[: words.SHOWN]),
            *end_sentences(case),
        ),
        status=Status.FAILED,
        awaited=ranks,
    )
