"""What is said of a command that failed though all of its ranks had come to the ends of their programs."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from hangwatch import words
from hangwatch.model import Launched
from hangwatch_agent.roster.phases import EXITING
from hangwatch_agent.roster.rank_states import RankState


def aborted_at_exit(launched: Iterable[Launched], rank_states: Iterable[RankState]) -> str:
    """Which ranks SIGABRT ended behind their programs, as torch's gloo does now and then; "" where none was."""
    aborted = {each.rank for each in launched if each.exit_code == -signal.SIGABRT}
    through = sorted(each.rank for each in rank_states if each.rank in aborted and each.reading.phase in EXITING)
    if not through:
        return ""
    were = words.verb(len(through), "was", "were")
    return (
        f"hangwatch: {words.ranks(through)} {were} aborted (SIGABRT) at the exit, after the main program had ended, as"
        " torch's gloo may be: a launcher takes that for a failure; no rank hung or failed before"
    )
