"""Locks of one process that two of its threads take in opposite orders, or one takes twice, by the source."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model import Frame, ThreadStack
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import user_frame


@dataclass(frozen=True)
class OwnLocks:
    """The training thread waits for the lock `taken` and has `held`; `thread` has the one and waits for the other.

    Without `thread` it has taken `taken` itself before.
    """

    taken: str
    held: str
    thread: str = ""
    where: Frame | None = None


def own_locks(view: RankView) -> OwnLocks | None:
    """Names are compared without their owners: `self.lock` of one method may be `state.lock` of another."""
    stacks = view.evidence.stacks
    mine = next((stack for stack in stacks if stack.thread_id == view.now.thread_id), None)
    if mine is None or not mine.entering or not view.idle:
        return None
    taken, held = mine.entering[-1], mine.entered
    for stack in stacks:
        if stack is not mine and (lock := _crosses(mine, stack)):
            return OwnLocks(taken, lock, stack.name, user_frame(stack.frames))
    return OwnLocks(taken, taken) if taken in held else None


def _crosses(mine: ThreadStack, other: ThreadStack) -> str:
    """The name of the lock that `mine` has and `other` waits for, if `other` has the one that `mine` waits for."""
    wanted = {_bare(name) for name in other.entering}
    has = {_bare(name) for name in other.entered}
    if not {_bare(name) for name in mine.entering} & has:
        return ""
    return next((name for name in mine.entered if _bare(name) in wanted), "")


def _bare(name: str) -> str:
    return name.rpartition(".")[2]
