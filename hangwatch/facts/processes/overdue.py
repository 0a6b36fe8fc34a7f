"""A rank that computes at a place which each of its steps has come through, for far longer than those steps took."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch import words
from hangwatch.model import Frame
from hangwatch.ranks.thread_stacks import stack_of
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing, Within

FAR_LONGER = 30.0  # times the slowest recent step; a step of another shape or size takes some times as long, not that
_SHORT_S = 0.1  # below it a duration is told as "0.1 s": the record is no finer
_STEPS = 4  # that must have come through, for their slowest one to tell what is usual; one of them may warm up
_ONCE = frozenset({Within.CHECKPOINT, Within.COMPILE, Within.IMPORT})  # what one step does, and others do not


@dataclass(frozen=True)
class Overdue:
    """`turn` is the line of the training loop, `slowest_s` what the slowest of the recent `steps` took, in seconds."""

    turn: Frame
    steps: int
    slowest_s: float

    def sentence(self, view: RankView) -> str:
        """The rank's usual step, and how long it is in this one: what the record of its steps says."""
        usual = words.duration(self.slowest_s) if self.slowest_s >= _SHORT_S else f"{_SHORT_S} s"
        return (
            f"each step of rank {view.rank} goes through {words.place(self.turn)}: it has made {self.steps}, the recent"
            f" ones within {usual} each, and has been in this one for {words.duration(view.evidence.still_s)}"
        )


def overdue(view: RankView) -> Overdue | None:
    """By the source each turn of its loop comes to where it is; its stack shows nothing that one turn alone does."""
    times = view.reading.times if view.reading is not None else None
    stack = stack_of(view.evidence.stacks, view.now)
    if times is None or stack is None or stack.each_turn is None or times.steps < _STEPS:
        return None
    if view.now.doing is not Doing.CODE or not _ONCE.isdisjoint(view.now.within):
        return None
    if view.evidence.still_s < FAR_LONGER * times.slowest_recent_s:
        return None
    return Overdue(stack.each_turn, times.steps, times.slowest_recent_s)
