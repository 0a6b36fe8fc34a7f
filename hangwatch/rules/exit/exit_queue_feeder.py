"""The feeder thread of a multiprocessing queue that no process empties."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.leaving import leaving
from hangwatch.model import Frame, ThreadStack
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.lingering import cannot_exit
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import main_thread_of, name_of, user_frame

_STARTERS = ("torch/multiprocessing/spawn.py", "multiprocessing/process.py")
_READ_FIRST = (
    "read the queue until all ranks have sent what they send, and join them only then: mp.spawn(..., join=False)"
)


def queue_feeder(case: Case) -> Finding | None:
    """multiprocessing waits at the exit for a queue that no process empties."""
    held = leaving(case, Doing.QUEUE_FEEDER)
    if not held:
        return None
    writing = [view for view in held if _feeder(view) is not None]
    joins = _joining(case)
    meanwhile = f"; the process that started them waits for their end{words.at(joins)}" if joins is not None else ""
    found = cannot_exit(
        case,
        "exit-queue-feeder",
        held,
        f"a multiprocessing queue still holds data, and no process reads it{meanwhile}",
        sure=len(writing) == len(held),
        evidence=(
            f"the main thread of rank {held[0].rank} is in Queue._finalize_join, at the exit of the interpreter",
            *(
                f"the queue's feeder thread of rank {view.rank} waits in a write to its pipe"
                for view in writing[: words.SHOWN]
            ),
        ),
    )
    return replace(found, fix=_READ_FIRST) if joins is not None else found


def _joining(case: Case) -> Frame | None:
    """The line of the program at which the process that started the ranks waits for their end."""
    stacks = [stack for each in case.snapshot.launchers if (stack := main_thread_of(each.stacks)) is not None]
    joining = (stack for stack in stacks if any(_joins(frame) for frame in stack.frames))
    return next((user_frame(stack.frames) for stack in joining), None)


def _joins(frame: Frame) -> bool:
    return name_of(frame.function) == "join" and frame.file.endswith(_STARTERS)


def _feeder(view: RankView) -> ThreadStack | None:
    return next(
        (each for each in view.evidence.stacks if each.frames and name_of(each.frames[0].function) == "_send"), None
    )
