"""Which function made a call, by what is recorded and by where the rank stands."""

from __future__ import annotations

from hangwatch.facts.call_site import Caller, caller, recorded_caller
from hangwatch.facts.case import Case
from hangwatch.model import Collective


def caller_of(case: Case, rank: int, call: Collective) -> Caller | None:
    """The function that made `call`: by its record, else by the stack of the rank that stands in it.

    The stack may show the line that waits for the call, and not the one that made it.
    """
    if (made := recorded_caller(call)) is not None:
        return made
    view, entry = case.ranks.get(rank), case.blocked.get(rank)
    inside = view is not None and entry is not None and entry.seq == call.seq
    return caller(view.evidence.main_stack) if view is not None and inside else None
