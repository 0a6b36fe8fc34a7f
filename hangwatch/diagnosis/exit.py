"""The end of a job: training is over, and a process stays."""

from __future__ import annotations

from ..records import Certainty, Status, ThreadStack
from ..stacks import Doing, origin, user_frame
from . import words
from .case import Case, RankView
from .finding import Finding, Rule


def lingering(case: Case, doing: Doing) -> list[RankView]:
    """Ranks whose main program is over and whose main thread stands in `doing`, while nobody waits in a collective."""
    if case.blocked:
        return []
    return [view for view in case if not view.dead and view.main.doing is doing]


def non_daemon_thread(case: Case) -> Finding | None:
    """The interpreter waits in threading._shutdown for a thread that does not end."""
    held = lingering(case, Doing.JOIN_THREADS)
    holders = [(view, thread) for view in held for thread in _holders(view)]
    if not holders:
        return None
    ranks = [view.rank for view in held]
    view, thread = holders[0]
    where = user_frame(thread.frames)
    return Finding(
        "exit-non-daemon-thread",
        Certainty.PROVEN if len({holder.rank for holder, _ in holders}) == len(holders) else Certainty.LIKELY,
        f"Training is over, but {case.name(ranks)} cannot exit: thread {thread.name!r} still runs{words.at(where)}"
        " and is no daemon.",
        culprits=tuple(holder.culprit(user_frame(stack.frames)) for holder, stack in holders),
        victims=(),
        evidence=(
            f"the main thread of rank {view.rank} is in threading._shutdown",
            *(
                f"rank {holder.rank} has thread {stack.name!r}{words.at(user_frame(stack.frames))}"
                for holder, stack in holders[:8]
            ),
        ),
        status=Status.LINGERING,
    )


def _holders(view: RankView) -> list[ThreadStack]:
    """The threads that may keep the process: those that run the user's code first."""
    threads = [stack for stack in view.evidence.stacks if not stack.main and stack.frames and not _ours(stack)]
    users = [stack for stack in threads if any(origin(frame.file) == "user" for frame in stack.frames)]
    return users or [stack for stack in threads if any(origin(frame.file) == "package" for frame in stack.frames)]


def _ours(stack: ThreadStack) -> bool:
    return any(origin(frame.file) == "hangwatch" for frame in stack.frames)


RULES: tuple[Rule, ...] = (non_daemon_thread,)
