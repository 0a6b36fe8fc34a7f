"""Errors and ends of loader workers, which several causes begin with."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import ends_the_others
from hangwatch.model import Certainty, Culprit, Stage, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

KILLED = re.compile(
    r"DataLoader worker \(pid\(?s?\)? ([\d, ]+)\) (?:is killed by signal: ([\w ]+)|exited unexpectedly)"
)


HANDLED_S = 0.05  # seconds between an error and the next step, after which the program has handled the error
PEERS_FAILED_S = 3.0  # seconds; until then gloo's ranks have noticed that a peer is gone, and fail too


def resource(
    case: Case,
    cause: str,
    views: list[RankView],
    what: str,
    certainty: Certainty,
    evidence: list[str],
    workers: tuple[Culprit, ...] = (),
) -> Finding:
    ranks = [view.rank for view in views]
    errors = [
        f"rank {view.rank}: {first_line(worker_error(view))}" for view in views[: words.SHOWN] if worker_error(view)
    ]
    return Finding(
        cause,
        certainty,
        f"{case.say(ranks, 'gets', 'get', capital=True)} no more batches: {what}.",
        culprits=workers or tuple(view.culprit() for view in views),
        victims=case.victims(ranks),
        step=views[0].step,
        evidence=(*errors, *evidence),
        status=after_an_error(case, views) if errors else None,
        stage=Stage.DATA,
        awaited=tuple(ranks),
    )


def after_an_error(case: Case, views: list[RankView]) -> Status | None:
    """FAILED, unless other ranks still wait for a rank that has been dead for a while."""
    raised = [view for view in views if view.dead or view.raised]
    if not raised:
        return None
    others = [view for view in case if view not in views and not view.dead]
    held = any(view.rank in case.blocked for view in others) and all(long_dead(case, view) for view in raised)
    return Status.HUNG if held and not ends_the_others(case) else Status.FAILED


def long_dead(case: Case, view: RankView) -> bool:
    ended = view.evidence.ended_at
    return view.dead and ended is not None and case.snapshot.taken_at - ended > PEERS_FAILED_S


def worker_error(view: RankView) -> str:
    """The error that ended it, or after which it has begun no step any more."""
    reading = view.reading
    exception = view.exception
    if reading is None or exception is None:
        return ""
    went_on = any(step.at > exception.at + HANDLED_S for step in reading.steps[-1:])
    return f"{exception.type}: {exception.message}" if exception.fatal or not went_on else ""


def certainty_of(view: RankView) -> Certainty:
    """An error that a program has handled is not known to be why it does not move now."""
    return Certainty.PROVEN if view.raised or view.dead else Certainty.LIKELY


def first_line(text: str) -> str:
    """The line that says most: of an error that a worker has passed on, the last one."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    return (lines[-1] if "Caught" in lines[0] else lines[0])[:200]
