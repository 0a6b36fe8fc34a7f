"""The functions that make collective calls: of the user, or of the framework that his one line runs.

Below a trainer one line of the user's leads to every call. The innermost function outside of torch tells one point of
the program from another there, and which ranks have ever been at it.
"""

from __future__ import annotations

from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, Frame
from hangwatch.stacks.frames import origin

Caller = tuple[str, str, int]  # file, function, line
ASKED = 64  # other ranks whose records are read, evenly spread: enough to know a place that most ranks call from


def caller(frames: tuple[Frame, ...]) -> Caller | None:
    """The innermost line of the user or of a package; None where the frames show none."""
    own = (frame for frame in frames if not frame.native and origin(frame.file) in ("user", "package"))
    return next(((frame.file, frame.function, frame.line) for frame in own), None)


def caller_of(case: Case, rank: int, call: Collective) -> Caller | None:
    """The function that made `call`: by the stack where the rank stands in it, else by its record."""
    view, entry = case.ranks.get(rank), case.blocked.get(rank)
    inside = view is not None and entry is not None and entry.seq == call.seq  # then the stack says most
    return caller(view.evidence.main_stack if view is not None and inside else call.frames)


class Callers:
    """Which functions each rank has made calls from, as far as recorded."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._known: dict[int, dict[Caller, int]] = {}

    def before(self, rank: int, call: Collective) -> set[Caller]:
        """The callers of all calls of `rank` but `call`."""
        counts = self.all(rank)
        here = caller(call.frames)
        return {each for each, times in counts.items() if each != here or times > 1}

    def by_any(self, found: Caller, calls: dict[int, Collective]) -> bool:
        """One of the ranks has made another call from there than the one in `calls`."""
        ranks = list(calls)
        return any(found in self.before(rank, calls[rank]) for rank in ranks[:: max(len(ranks) // ASKED, 1)])

    def all(self, rank: int) -> dict[Caller, int]:
        """How often each of its callers has called, in the calls of `rank` that are on record."""
        if rank not in self._known:
            counts: dict[Caller, int] = {}
            for call in self._case.ledger.calls(rank).values():
                if (found := caller(call.frames)) is not None:
                    counts[found] = counts.get(found, 0) + 1
            self._known[rank] = counts
        return self._known[rank]


@once
def callers_of(case: Case) -> Callers:
    """The callers of a case: what was read of one rank is remembered."""
    return Callers(case)
