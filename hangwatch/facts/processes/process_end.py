"""How a process ended, in words, and why: by itself, because it lost a peer, or by its launcher."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.rank_end import ENDED_BY_LAUNCHER, Why, ending, follows
from hangwatch.model import Frame, Phase, ProcessFacts
from hangwatch.ranks.view import RankView

STOPPED_BY_A_PERSON = frozenset({"KeyboardInterrupt", "SystemExit"})
PEER = re.compile(r"\[([0-9a-fA-F.:]+)\]:\d+")  # as gloo names the other end of a connection


def end_of(process: ProcessFacts | None) -> str:
    """How a process ended, in words."""
    return words.ended(None if process is None else process.exit_code)


def how_it_ended(view: RankView) -> str:
    """`rank 2 ended: exit code 0`, or how far the end of a living one has come."""
    who = words.ranks([view.rank])
    if view.dead:
        return f"{who} ended: {end_of(view.evidence.process)}"
    if view.exception is not None and view.raised:
        return f"{who} failed with {words.error(view.exception)}"
    return f"{who} is past the end of its main program, and raised no error"


def all_asked_to_end(case: Case) -> bool:
    """Each of several ranks was ended by SIGTERM, and none had raised an error: another process sent the signal."""
    ends = [view for view in case if view.dead]
    return len(ends) == len(case.ranks) > 1 and all(
        ended_for(view) is Why.LAUNCHER and not view.raised for view in ends
    )


def ended_for(view: RankView) -> Why:
    """Why a rank has ended, or is about to; PEER also for one whose backend ended it for a call of some rank.

    An error that tells of another's end counts here where the rank has caught it, too.
    """
    exception = view.exception
    if exception is not None and follows(exception):
        return Why.PEER
    if view.dead and ending(view).by_backend:
        return Why.PEER
    return Why.LAUNCHER if view.exit_code in ENDED_BY_LAUNCHER or view.followed else Why.ITSELF


def last_place(view: RankView) -> Frame | None:
    """The user's line of its last recorded call, for a process that has no stack any more."""
    if view.where is not None:
        return view.where
    exception = view.exception
    return exception.frames[0] if exception is not None and exception.frames else None


def death_time(view: RankView) -> float:
    """When its process ended, where the watchdog saw it; else when it was last known to live, by its board."""
    if view.evidence.ended_at is not None:
        return view.evidence.ended_at
    return 0.0 if view.reading is None else max(view.reading.ticker_at, view.reading.progress.at)


def ended_before_others(case: Case) -> tuple[list[int], list[int]] | None:
    """(ranks that had ended as they should, ranks that failed after them), where no rank waits any more."""
    failed = [view.rank for view in case if view.failed]
    ended = [view.rank for view in case if view.ended_well]
    return (ended, failed) if failed and ended and not case.blocked else None


def has_gone_on(view: RankView) -> bool:
    """It has destroyed its process groups and is in its next init_process_group: a trial, a stage, a new try."""
    return view.phase is Phase.INIT and had_destroyed(view)


def had_destroyed(view: RankView) -> bool:
    """It had destroyed its process groups, and not just ended."""
    return view.reading is not None and view.reading.progress.calls > 0 and not view.reading.heads
