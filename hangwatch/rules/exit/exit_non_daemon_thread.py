"""A thread that is no daemon keeps its process."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.leaving import awaited_threads, keeps_its_process, leaving
from hangwatch.rules.finding import Finding
from hangwatch.rules.lingering import cannot_exit
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import user_frame


def non_daemon_thread(case: Case) -> Finding | None:
    """The interpreter waits in threading._shutdown for a thread that does not end."""
    held = leaving(case, Doing.JOIN_THREADS)
    holders = [(view, thread) for view in held for thread in awaited_threads(view)]
    if not holders:
        return None
    view, thread = holders[0]
    one_each = list({holder.rank: (holder, stack) for holder, stack in reversed(holders)}.values())[::-1]
    return cannot_exit(
        case,
        "exit-non-daemon-thread",
        held,
        keeps_its_process(thread),
        sure=len(one_each) == len(holders) or all(holder.lasting_threads for holder, _ in holders),
        culprits=tuple(holder.culprit(user_frame(stack.frames)) for holder, stack in one_each),
        evidence=(
            f"the main thread of rank {view.rank} is in threading._shutdown",
            *(
                f"rank {holder.rank} has thread {stack.name!r}{words.at(user_frame(stack.frames))}"
                for holder, stack in holders[: words.SHOWN]
            ),
        ),
    )
