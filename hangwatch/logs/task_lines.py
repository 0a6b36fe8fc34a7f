"""Lines that srun labels with the number of their task: tracebacks, and the last words. Most tasks are ranks.

Programs write lines such as `12: loss 3.0` too. srun labels all lines of a step or none.
"""

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
_OF_TORCH = re.compile(r"\[rank\d+\]:|\[[EWIF](?:\d{4})? [^\]]*ProcessGroup")


class TaskLines:
    """Takes the lines of one log, and keeps what they say under the numbers of tasks."""

    def __init__(self) -> None:
        self._raised = defaultdict[int, Tracebacks](Tracebacks)
        self._turns = defaultdict[int, Turns](Turns)
        self._stacks = Stacks()
        self._own = Logs()
        self._of_torch = {True: 0, False: 0}  # lines of torch, with a label and without one

    def take(self, whole: str, line: str, logs: Logs) -> bool:
        """Keep what a line says; `line` is `whole` without its label. False for a line without one."""
        label = _TASK.match(whole)
        if line.startswith("[") and _OF_TORCH.match(line):
            self._of_torch[label is not None] += 1
        if label is None or line.startswith("[rank"):
            return False
        task, own = int(label[1]), self._own
        own.ranks.add(task)
        if not self._stacks.take(line, task):
            own.last_words[task] = line.strip()
        raised = self._raised[task]
        if not raised.take(line, own, task) and task in raised.followed and self._turns[task].take(line):
            raised.went_on(task, own)
        return True

    def end(self, logs: Logs) -> bool:
        """The file has ended; whether it holds stacks of tasks."""
        own = self._own
        of_use = self._stacks.end(own)
        for raised in self._raised.values():
            raised.end(own)
        if own.ranks and (self._of_torch[True] >= self._of_torch[False] or own.ranks & logs.tasks.keys()):
            _add(own, logs)
            return of_use
        _keep_unlabelled(own, logs)
        return False


def _add(own: Logs, logs: Logs) -> None:
    """What the lines of one file say to that of others."""
    known = logs.of_tasks = Logs() if logs.of_tasks is None else logs.of_tasks
    known.ranks |= own.ranks
    known.raised |= own.raised
    known.caught |= own.caught
    known.stacks |= own.stacks
    known.last_words |= own.last_words
    logs.labelled_tasks |= own.ranks


def _keep_unlabelled(own: Logs, logs: Logs) -> None:
    """Numbers before lines that are no labels tell of no rank."""
    for raised in own.raised.values():
        keep_nameless(raised, None, logs)


def _are_tasks(own: Logs, logs: Logs) -> bool:
    """The numbers are those of tasks: all from 0 on, or lines of srun or torch name some of them.

    No program numbers the lines of stacks.
    """
    named = logs.tasks.keys() | {task for task, _ in logs.labels}
    return own.ranks == {*range(len(own.ranks))} or bool(own.ranks & named) or bool(own.stacks)


def placed(logs: Logs) -> Logs:
    """The logs with what the lines of tasks say as that of ranks, where tasks are ranks; else as of no known rank."""
    own = logs.of_tasks
    if own is None:
        return logs
    if not slurm.tasks_are_ranks(logs) or not _are_tasks(own, logs):
        logs = replace(logs, of_tasks=None, nameless=dict(logs.nameless))
        _keep_unlabelled(own, logs)
        return logs
    late = {each.rank for each in logs.timeouts}
    told = {rank: replace(each, late=rank in late) for rank, each in own.raised.items()}
    return replace(
        logs,
        of_tasks=None,
        raised={**told, **logs.raised},
        caught={**own.caught, **logs.caught},
        ranks=logs.ranks | own.ranks,
        stacks={**own.stacks, **logs.stacks},
        last_words={**own.last_words, **logs.last_words},
    )
