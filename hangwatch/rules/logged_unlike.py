"""A value that a trainer reduces, and that only some ranks have logged."""

from __future__ import annotations

from pathlib import Path

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.differences.trainer_branches import apart
from hangwatch.facts.loops.switches import ending, logged
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def logged_unlike(case: Case, cause: str) -> Finding | None:
    """Some ranks are in a trainer's reduction of what was logged, and the others have gone on without it.

    "rank-zero-only-collective" explains it where all that is logged so stands behind a check of the rank.
    """
    sides = apart(case) if case.in_trouble else None
    if sides is None or ending(case, sides.odd, sides.others) is not None:
        return None
    calls, ways = sides.found.calls, ((sides.others, sides.odd), (sides.odd, sides.others))
    found = [(who, logged(case, calls[who[0]].frames, calls[left[0]].frames), left) for who, left in ways]
    who, lines, left = next((each for each in found if each[1]), ((), (), ()))
    by_rank = all(each.asks == "rank" for each in lines)
    if not lines or by_rank is not (cause == "rank-zero-only-collective"):
        return None
    told = words.either(f"at {words.place(each.where)} behind `{each.condition}`" for each in lines[: words.SHOWN])
    why = "lets only some ranks come there" if by_rank else "has probably come out differently on the ranks"
    number, file = f"number {sides.found.seq} of group {sides.found.group.name}", Path(lines[0].asked.file).name
    made = f"{number} is a call of {case.name(who)} that reduces what was logged, in {file}"
    return Finding(
        cause,
        Certainty.LIKELY,
        f"{case.say(who, 'reduces', 'reduce', capital=True)} a logged value that"
        f" {case.say(left, 'does', 'do')} not: it is logged {told}, which {why}.",
        fix="log it on every rank, or without sync_dist there: the trainer reduces it over all of them"
        if by_rank
        else "log it on every rank, whatever its data: update the metric with what there is, or log a zero",
        culprits=case.culprits(sides.odd, lines[0].where if len(lines) == 1 else None),
        victims=case.victims(sides.odd),
        step=case.step_of(sides.odd),
        evidence=(f"{made}, and one of {case.name(left)} that does not",),
        witnesses=sides.why,
        status=case.failed_status,
    )
