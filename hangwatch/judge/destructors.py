"""Calls that a destructor made: `__del__` runs where the last reference goes, or where the garbage collector comes by.

The line below it on the stack has nothing to do with the call, and may be another one on each rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.calls.last_calls import frames_at_end
from hangwatch.facts.case import Case
from hangwatch.model import Frame
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import name_of, of_origin

DESTRUCTOR = "__del__"


@dataclass(frozen=True)
class Destructor:
    """`where`, a line of `__del__`, made the call of `rank`, itself or further down; `ran_at` is where that ran."""

    rank: int
    where: Frame
    ran_at: Frame | None

    @property
    def told(self) -> str:
        ran = f" at {words.place(self.ran_at)}" if self.ran_at is not None else ""
        return (
            f"`{DESTRUCTOR}`{words.at(self.where)} made the call of rank {self.rank}: it ran{ran}, by the garbage"
            " collector or as the last reference went."
        )


def destructor(case: Case, finding: Finding, victims: tuple[int, ...]) -> Destructor | None:
    """That of the first culprit whose call comes from one; else of the first rank that waits in such a call."""
    ranks = dict.fromkeys((*finding.blamed, *finding.expected, *victims))
    return next((found for rank in ranks if rank in case.ranks for found in _of(case, rank)), None)


def _of(case: Case, rank: int) -> Iterator[Destructor]:
    view = case.ranks[rank]
    if not (rank in case.blocked or view.now.in_collective or view.failed):
        return
    stack = view.evidence.main_stack if not view.failed else frames_at_end(view)[0]
    own = of_origin(stack, "user")
    for depth, frame in enumerate(own):
        if name_of(frame.function) == DESTRUCTOR:
            yield Destructor(rank, frame, own[depth + 1] if depth + 1 < len(own) else None)
            return
