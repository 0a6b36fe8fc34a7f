"""Where calls come from: which call sites a rank has used before, and which it shares with others.

Numbers cannot say who left the common path when two ranks disagree, call sites often can: the rank that stands where it
has stood in every step is on the path, the one that stands where nobody ever stood has left it. Sites are hints and
never proof.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from ..ledger import family
from ..records import Collective, Frame
from ..stacks import origin, user_frame
from .case import Case

Path = tuple[tuple[str, int], ...]
Site = tuple[str, Path]  # kind of operation, and the user's lines that lead to it, innermost first


@lru_cache(maxsize=8192)
def path(frames: tuple[Frame, ...]) -> Path:
    """The user's own lines in a call stack, innermost first."""
    own = tuple((frame.file, frame.line) for frame in frames if not frame.native and origin(frame.file) == "user")
    where = user_frame(frames)
    return own or (((where.file, where.line),) if where is not None else ())


def site(call: Collective) -> Site | None:
    """Where a recorded call came from; None where that was not recorded."""
    lines = path(call.frames)
    return (family(call.op), lines) if lines else None


class Sites:
    """The call sites of a case's ranks."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._known: dict[int, dict[Site, int]] = {}

    def now(self, rank: int) -> Site | None:
        """Where `rank` waits now."""
        blocked = self.case.blocked.get(rank)
        if blocked is None:
            return None
        if blocked.call is not None and (found := site(blocked.call)) is not None:
            return found
        if blocked.where is None:
            return None
        return (family(blocked.op), ((blocked.where.file, blocked.where.line),))

    def before(self, rank: int) -> dict[Site, int]:
        """How often `rank` has used each site, without the call that it is in now."""
        if rank not in self._known:
            blocked = self.case.blocked.get(rank)
            current = (blocked.group.name, blocked.seq) if blocked is not None and blocked.group is not None else None
            counts: dict[Site, int] = {}
            for key, call in self.case.ledger.calls(rank).items():
                found = site(call) if key != current else None
                if found is not None:
                    counts[found] = counts.get(found, 0) + 1
            self._known[rank] = counts
        return self._known[rank]

    def inside(self, rank: int, group: str, step: int) -> tuple[Counter[Site], set[Site]] | None:
        """The sites of one group that `rank` used in one step, and those that it used before, where recorded."""
        span = self.case.ledger.span(rank, group, step)
        if span is None:
            return None
        within: Counter[Site] = Counter()
        earlier: set[Site] = set()
        for (name, seq), call in self.case.ledger.calls(rank).items():
            found = site(call) if name == group and seq <= span[1] else None
            if found is not None and seq > span[0]:
                within[found] += 1
            elif found is not None:
                earlier.add(found)
        return within, earlier

    def regular(self, rank: int) -> bool | None:
        """`rank` has stood before where it stands now; None where its sites were not recorded."""
        now, before = self.now(rank), self.before(rank)
        if now is None or not before:
            return None
        return any(_same(now, other) for other in before)

    def shared(self, rank: int, others: list[int]) -> bool:
        """One of `others` stands, or has stood, where `rank` stands now."""
        now = self.now(rank)
        if now is None:
            return False
        for other in others:
            there = self.now(other)
            if (there is not None and _same(now, there)) or any(_same(now, site) for site in self.before(other)):
                return True
        return False


def _same(one: Site, other: Site) -> bool:
    """Equal as far as both are known: where only the innermost line was recorded, that decides."""
    if one[0] != other[0] and one[0] and other[0]:
        return False
    shorter = min(len(one[1]), len(other[1]))
    return one[1][:shorter] == other[1][:shorter] if shorter == 1 else one[1] == other[1]
