"""What to do where one rank made a call more often than the others."""

from __future__ import annotations

from hangwatch import words
from hangwatch.ranks.view import RankView

_NO_RETRY = "never repeat a step on one rank alone once it has communicated: let all ranks vote on a retry"


def equal_turns(view: RankView) -> str:
    """The fix for the loop that makes the call of `view` again: it may go through items of that rank's own."""
    loop = view.now.loop
    if loop is None or not loop.outer:
        return _NO_RETRY
    return (
        f"let all ranks make the same number of turns in the loop at {words.place(loop.where)}: they must agree on what"
        " it goes through, or on a retry, before they communicate in it"
    )
