"""Lines that srun labels with the number of their task: tracebacks, and the last words. Most tasks are ranks."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

from . import slurm
from .going_on import Turns
from .model import Logs
from .stacks import Stacks
from .tracebacks import Tracebacks, keep_nameless

_TASK = re.compile(r"(?:\x1b\[[\d;]*m)? *(\d+): (?!srun: |slurmstepd: )")


class TaskLines:
    """Takes the lines of one log, and keeps what they say under the numbers of tasks."""

    def __init__(self) -> None:
        self._raised = defaultdict[int, Tracebacks](Tracebacks)
        self._turns = defaultdict[int, Turns](Turns)
        self._stacks = Stacks()

    def take(self, whole: str, line: str, logs: Logs) -> bool:
        """Keep what a line says; `line` is `whole` without its label. False for a line without one."""
        label = _TASK.match(whole)
        if label is None or line.startswith("[rank"):
            return False
        task = int(label[1])
        own = logs.of_tasks = Logs() if logs.of_tasks is None else logs.of_tasks
        own.ranks.add(task)
        logs.labelled_tasks.add(task)
        if not self._stacks.take(line, task):
            own.last_words[task] = line.strip()
        raised = self._raised[task]
        if not raised.take(line, own, task) and task in raised.followed and self._turns[task].take(line):
            raised.went_on(task, own)
        return True

    def end(self, logs: Logs) -> None:
        own = logs.of_tasks
        if own is not None:
            self._stacks.end(own)
            for raised in self._raised.values():
                raised.end(own)


def placed(logs: Logs) -> Logs:
    """The logs with what the lines of tasks say as that of ranks, where tasks are ranks; else as of no known rank."""
    own = logs.of_tasks
    if own is None:
        return logs
    if not slurm.tasks_are_ranks(logs):
        logs = replace(logs, of_tasks=None, nameless=dict(logs.nameless))
        for raised in own.raised.values():
            keep_nameless(raised, None, logs)
        return logs
    late = {each.rank for each in logs.timeouts}
    told = {rank: replace(each, late=rank in late) for rank, each in own.raised.items()}
    return replace(
        logs,
        of_tasks=None,
        raised={**told, **logs.raised},
        ranks=logs.ranks | own.ranks,
        stacks={**own.stacks, **logs.stacks},
        last_words={**own.last_words, **logs.last_words},
    )
