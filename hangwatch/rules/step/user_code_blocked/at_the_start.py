"""Ranks that have not come to init_process_group yet, and stand in code of their own."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.facts.calls.last_calls import brought_down, end_sentences
from hangwatch.facts.case import Case
from hangwatch.facts.rank_end import Why, ending, gave_up_on_start_of
from hangwatch.facts.start.arrivals import LATE, Arrivals, host_of
from hangwatch.facts.start.new_groups import (
    is_only_late,
    not_called,
    sentences,
)
from hangwatch.model import Certainty, Culprit, Phase, Stage, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding


def late_rank(case: Case) -> Finding | None:
    """Ranks wait for one whose process lives, and which has not come yet: it may still."""
    arrivals = Arrivals(case)
    waiting = [view.rank for view in arrivals.waiting]
    if not waiting or not (arrivals.late or arrivals.unborn):
        return None
    late = sorted({*(view.rank for view in arrivals.late), *(each.rank for each in arrivals.unborn)})
    first = next(iter(arrivals.late), None)
    ages = [case.snapshot.taken_at - each.started_at for each in arrivals.unborn]
    oldest = max([*ages, *map(arrivals.age, arrivals.late)])
    doing = f": it is at {words.place(first.where)}" if first is not None and first.where is not None else ""
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.say(late, 'has', 'have', capital=True)} not called init_process_group for"
        f" {words.duration(oldest)}{doing}; {case.wait_words(waiting)} for {words.verb(len(late), 'it', 'them')}.",
        culprits=(
            *(view.culprit() for view in arrivals.late),
            *(Culprit(each.rank, each.pid, host_of(case)) for each in arrivals.unborn),
        ),
        victims=tuple(waiting),
        evidence=tuple(_late_evidence(arrivals)),
        status=_status_of_late(arrivals, oldest),
        stage=Stage.START,
    )


def came_too_late(case: Case) -> Finding | None:
    """Ranks gave up waiting in init_process_group for the address of one that had not called it."""
    given_up = {view.rank: missing for view in case if (missing := gave_up_on_start_of(view)) is not None}
    late = sorted({rank for missing in given_up.values() for rank in missing.ranks if rank in case.ranks})
    views = case.views(late)
    if not views or not brought_down(case) or not all(_had_not_come(view) for view in views):
        return None
    first, one = views[0], len(views) == 1
    limit = words.duration(min(missing.timeout_s for missing in given_up.values()))
    stood = f": {words.verb(len(views), 'it', 'they')} stood at {words.place(first.where)}" if first.where else ""
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.name(late, capital=True)} had not called init_process_group{stood}; {case.name(given_up)} waited there"
        f" for {'it' if one else 'them'} for {limit}, and gave up.",
        fix="do what takes long after init_process_group, or give it a longer timeout=",
        culprits=tuple(view.culprit() for view in views),
        victims=tuple(given_up),
        evidence=end_sentences(case),
        status=Status.FAILED,
        stage=Stage.START,
    )


def _had_not_come(view: RankView) -> bool:
    """It was on its way to init_process_group, and no error of its own ended it there."""
    return view.phase is Phase.START and not view.raised and not (view.dead and ending(view).why is Why.ITSELF)


def _status_of_late(arrivals: Arrivals, oldest: float) -> Status:
    """Long patience with a process that lives, unless a fact holds each of those that are awaited."""
    if any(view.works for view in arrivals.late):
        return Status.WAITING
    held = not arrivals.unborn and all(view.evidence.held and view.evidence.stalled for view in arrivals.late)
    return Status.HUNG if held or oldest > LATE * arrivals.case.snapshot.start_patience_s else Status.WAITING


def _late_evidence(arrivals: Arrivals) -> Iterable[str]:
    for view in arrivals.late[: words.SHOWN]:
        yield f"rank {view.rank} (pid {view.pid}) lives and has not called init_process_group{words.at(view.where)}"
    for each in arrivals.unborn[: words.SHOWN]:
        yield f"pid {each.pid}, which was started as rank {each.rank}, lives and has not imported torch yet"


def late_for_new_group(case: Case) -> Finding | None:
    """Ranks have not called new_group yet, and stand in code of their own."""
    found = not_called(case)
    if found is None or not is_only_late(case, found):
        return None
    call, awaited, stuck = found.call, found.awaited, found.stuck
    first = case.ranks[awaited[0]]
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.say(awaited, 'has', 'have', capital=True)} not called new_group yet"
        f"{words.at(first.where)}; {case.wait_words(stuck)} in it{words.at(call.where(stuck[0]))}.",
        culprits=case.culprits(awaited),
        victims=stuck,
        evidence=tuple(sentences(call)),
        stage=Stage.START,
    )
