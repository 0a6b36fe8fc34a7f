"""A rank stood in code of the program until the others gave up waiting for it, which ended the job."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.last_calls import Last, end_sentences, endings_of, last_call
from hangwatch.facts.own_code import IN_CODE, how_stuck
from hangwatch.facts.rank_end import Why, gave_up_on
from hangwatch.model import Certainty, Status
from hangwatch.ranks.last_words import Kind
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding


@dataclass(frozen=True)
class _Vain:
    """`waiter` gave up waiting for the ranks `late`, after `limit_s` where that is known."""

    waiter: RankView
    late: tuple[int, ...]
    limit_s: float | None


def blocked_until_a_timeout(case: Case) -> Finding | None:
    """The few ranks that had not come to the others' call stood in their own code, in the same step or before it."""
    vain = next((found for view in case if (found := _in_vain(case, view)) is not None), None)
    late = case.views(vain.late) if vain is not None else []
    if vain is None or not late or len(late) < len(vain.late) or 2 * len(late) > len(case.ranks):
        return None
    if not all(_stood_in_code(case, view) and not _ahead(view, vain.waiter) for view in late):
        return None
    return _finding(case, vain, late)


def _in_vain(case: Case, view: RankView) -> _Vain | None:
    """A monitored barrier names the ranks that did not come; of another call they are known by their counts."""
    named = gave_up_on(view)
    if named is not None:
        return _Vain(view, named.ranks, named.timeout_s)
    end = endings_of(case).get(view.rank)
    if end is None or end.word is None or end.word.kind is not Kind.TIMEOUT:
        return None
    groups = case.ledger.groups_of(view.rank)
    behind = {late for group in groups if (late := tuple(sorted(group.behind(group.issued(view.rank) or 0))))}
    return _Vain(view, behind.pop(), end.word.timeout_s) if len(behind) == 1 else None


def _stood_in_code(case: Case, view: RankView) -> bool:
    """It raised nothing, and its last stack is in the program's own code, in no call that communicates."""
    end = endings_of(case).get(view.rank)
    from_outside = end is None or end.why is Why.LAUNCHER
    return from_outside and not view.over and view.now.doing in IN_CODE and view.where is not None


def _ahead(view: RankView, waiter: RankView) -> bool:
    now, then = view.step.step, waiter.step.step
    return now is not None and then is not None and now > then


def _finding(case: Case, vain: _Vain, late: list[RankView]) -> Finding:
    first, ranks = late[0], tuple(view.rank for view in late)
    names, call = case.name(ranks, capital=True), last_call(case, vain.waiter)
    waited = f" for {words.duration(vain.limit_s)}" if vain.limit_s is not None else ""
    inside = f" in {_called(call)}{words.at(call.where)}" if call is not None else ""
    function = first.where.function if first.where is not None else "?"
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{names} stood in {function}{words.at(first.where)}: {how_stuck(first)}; rank {vain.waiter.rank} waited"
        f"{waited} for {words.verb(len(late), 'it', 'them')}{inside}, and gave up.",
        fix="mend what blocks there; if it may take so long, raise timeout= of the group or of the barrier",
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


def _called(call: Last) -> str:
    return "backward" if call.name == "gradients" else call.name or "a collective"
