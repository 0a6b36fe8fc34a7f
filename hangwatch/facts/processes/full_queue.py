"""Ranks that wait for room in a full queue, and the parent that would read it and waits for the ranks to end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import HELPER
from hangwatch.model import Frame, ProcessEvidence
from hangwatch.ranks.thread_stacks import python_of, runs_users_code
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import main_thread_of, name_of, origin, user_frame

_OF_PROCESSES = re.compile(r"/(multiprocess(ing)?|billiard)/queues\.py$")
_OF_THREADS = re.compile(r"/lib(64)?/python\d[.\d]*t?/queue\.py$")
_JOINS = re.compile(r"/(torch/multiprocessing/spawn|multiprocess(ing)?/process)\.py$")
_PUTS = re.compile(r"(\w+)\.put\(")


@dataclass(frozen=True)
class FullQueue:
    """A queue between processes, with room for `size` items (0: not known), and the parent that waits in join."""

    size: int
    parent: int
    where: Frame

    @property
    def told(self) -> str:
        room = f" (maxsize {self.size})" if self.size else ""
        return (
            f"waits in put: the queue is full{room}, and the one process left that could read it, the parent"
            f" {self.parent}, waits in join{words.at(self.where)} for the ranks to end"
        )


def waits_for_room(view: RankView) -> bool:
    """Its main thread stands in the `put` of a queue that has no room: of processes, or of threads."""
    main = main_thread_of(view.evidence.stacks)
    inner = list(takewhile(lambda frame: origin(frame.file) != "user", python_of(main))) if main is not None else []
    names = [(name_of(frame.function), frame.file) for frame in inner[:2]]
    among_processes = _is_put(names[:1], _OF_PROCESSES)  # its own lock is taken further in
    among_threads = [name for name, _ in names[:1]] == ["wait"] and _is_put(names[1:], _OF_THREADS)
    return view.steady and not view.busy and (among_processes or among_threads)


def _is_put(names: Iterable[tuple[str, str]], queues: re.Pattern[str]) -> bool:
    return any(name == "put" and queues.search(file) for name, file in names)


def full_queue(case: Case, stuck: list[RankView]) -> FullQueue | None:
    """The queue for whose room all of `stuck` wait, where no process but their parent could read it.

    Not where a thread or a further process of the job may do so, or a rank that waits for none of these.
    """
    where = {view.where for view in stuck}
    if len(where) != 1 or not all(map(_in_a_queue_of_processes, stuck)) or _others_may_read(case, stuck):
        return None
    parents = {view.in_kernel.parent for view in stuck if view.in_kernel is not None}
    parent = next((each for each in case.snapshot.launchers if {each.facts.pid} == parents), None)
    joins = _joins_at(parent) if parent is not None else None
    return FullQueue(_size(case, where.pop()), parent.facts.pid, joins) if parent is not None and joins else None


def _in_a_queue_of_processes(view: RankView) -> bool:
    main = main_thread_of(view.evidence.stacks)
    inner = python_of(main)[:1] if main is not None else ()
    return waits_for_room(view) and any(_OF_PROCESSES.search(frame.file) for frame in inner)


def _others_may_read(case: Case, stuck: list[RankView]) -> bool:
    living = [view for view in case if not (view.dead or view.over)]
    if any(view not in stuck and view.rank not in case.blocked for view in living):
        return True
    further = [*case.snapshot.others, *(child for view in living for child in view.evidence.children)]
    if any(each.role != HELPER and each.facts.state not in ("X", "Z") for each in further):
        return True
    return any(runs_users_code(stack) for view in living for stack in view.evidence.stacks if not stack.main)


def _joins_at(parent: ProcessEvidence) -> Frame | None:
    """The user's line at which the only thread of the parent that runs their code waits for its processes."""
    main = main_thread_of(parent.stacks)
    if main is None or any(runs_users_code(stack) for stack in parent.stacks if not stack.main):
        return None
    inner = takewhile(lambda frame: origin(frame.file) != "user", python_of(main))
    joins = any(name_of(frame.function) == "join" and _JOINS.search(frame.file) for frame in inner)
    return user_frame(main.frames) if joins else None


def _size(case: Case, where: Frame | None) -> int:
    """What a quoted line gives as the size of the queue that the line of the `put` names; 0 where none does."""
    name = _PUTS.search(case.text_of(where))
    made = re.compile(rf"\b{name[1]}\s*=.*Queue\((?:maxsize\s*=\s*)?(\d+)\)") if name is not None else None
    lines = (line for each in case.snapshot.excerpts for line in each.lines)
    found = {int(size[1]) for line in lines if made is not None and (size := made.search(line)) is not None}
    return found.pop() if len(found) == 1 else 0
