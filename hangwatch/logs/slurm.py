"""What Slurm says of tasks that failed, and of the end of a job from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .going_on import Turns
from .model import Failure, Logs, Reaped, Task

MARKS = ("srun: error: ", "slurmstepd: error: ***", "slurmstepd: error: Detected")
_ENDED = re.compile(r"srun: error: (\S+): tasks? (\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*): (.*\S)")
_CANCELLED = re.compile(r"slurmstepd: error: \*\*\* (JOB|STEP) \S+ ON (\S+) CANCELLED AT \S+(?: DUE TO ([A-Z ]+))?")
_NODE = re.compile(r"srun: error: Node failure on (\S+)")
_NO_MEMORY = re.compile(r"Detected \d+ oom[_-]kill event(?:\(s\)|s)? in (?:StepId=|step )(\S*\w)")
_CODE = re.compile(r"Exited with exit code (\d+)")
_OF_JOB, _OF_STEP = "Slurm cancelled the job", "Slurm cancelled the step"
_REQUEUED = ("PREEMPTION", "NODE FAILURE")
_BEING_ENDED = ("srun: Job step aborted", "srun: Terminating ", "srun: Force Terminated ")
_KILL = -9
_LAUNCHER = "it has started the ranks of its node"
_NOT_KNOWN = "no line tells whether its number is a rank, or it has started several ranks"
_OUT_OF_MEMORY = "Out Of Memory"
LACK_OF_MEMORY = "Slurm killed a process of its step for lack of memory"
_SIGNALS = {
    _OUT_OF_MEMORY: _KILL,
    "Killed": _KILL,
    "Segmentation fault": -11,
    "Bus error": -7,
    "Floating point": -8,
    "Illegal instruction": -4,
}
_ASKED = (
    "Terminated",
    "Aborted",
    "Interrupt",
    "Exited with exit code 0",
    "Exited with exit code 130",
)  # ended from outside, or by a watchdog
_LAST_SIGNAL = 31
_DIGITS = frozenset(" 0123456789")
_LABELLED = re.compile(r" *(\d+): \[rank(\d+)\]:")


class Lines:
    """Takes the whole lines of one log, their labels too."""

    def __init__(self) -> None:
        self._ends = False  # the step is being ended
        self._requeued = False  # for a reason for which Slurm starts the job anew, into the same file
        self._behind = Turns()
        self._told = list[str]()
        self._tasks = list[int]()

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        if line[:1] in _DIGITS and (labelled := _LABELLED.match(line)):
            logs.labels.add((int(labelled[1]), int(labelled[2])))
            return False
        if "slurmstepd" in line:
            return self._of_step(line, logs)
        self._ends = self._ends or line.startswith(_BEING_ENDED)
        return "srun: error: " in line and self._of_srun(line, logs)

    def _of_step(self, line: str, logs: Logs) -> bool:
        if cancelled := _CANCELLED.search(line):
            self._end_by(_cancelled(cancelled[1].lower(), cancelled[3]), logs)
            self._requeued = self._requeued or (cancelled[3] or "").startswith(_REQUEUED)
            self._ends = True
        elif killed := _NO_MEMORY.search(line):
            logs.out_of_memory[killed[1]] = None
        else:
            return False
        return True

    def _of_srun(self, line: str, logs: Logs) -> bool:
        if failed := _NODE.search(line):
            self._end_by(f"Slurm says that node {failed[1]} failed", logs)
            logs.failed_nodes.add(failed[1])
            return True
        found = _ENDED.search(line)
        if found is None:
            return False
        for task in _numbers(found[2]):
            logs.tasks.setdefault(task, Task(found[3], found[1], self._ends))
            self._tasks.append(task)
        return True

    def _end_by(self, said: str, logs: Logs) -> None:
        """Keep who ended it: that of a step goes without saying where the job is told."""
        if said.startswith(_OF_JOB):
            logs.ended_by.pop(_OF_STEP, None)
        elif said == _OF_STEP and any(other.startswith(_OF_JOB) for other in logs.ended_by):
            return
        logs.ended_by[said] = None
        self._told.append(said)

    def goes_on(self, line: str, logs: Logs) -> None:
        """An ordinary line: where the program counts up behind a requeue, what was said of its end is of the past."""
        if not self._requeued or not self._behind.take(line):
            return
        logs.earlier = Logs() if logs.earlier is None else logs.earlier
        logs.failed_nodes.clear()
        for said in self._told:
            logs.ended_by.pop(said, None)
            logs.earlier.ended_by[said] = None
        for task in self._tasks:
            logs.tasks.pop(task, None)
        self._requeued = self._ends = False
        self._told, self._tasks = [], []


def _cancelled(what: str, reason: str | None) -> str:
    return f"{_OF_JOB} ({reason.strip().lower()})" if reason else _OF_JOB if what == "job" else _OF_STEP


def failures(logs: Logs) -> Iterator[Failure]:
    """Tasks that failed by themselves, where tasks are ranks."""
    if tasks_are_ranks(logs):
        for number, task in _failed(logs):
            yield Failure(number, task.host, exit_code=_exit_code(task), text=_text(task, logs))


def tasks_are_ranks(logs: Logs) -> bool:
    """By the lines that name both; where none does, unless a task is a launcher that starts the ranks of its node."""
    if logs.labels:
        return all(task == rank for task, rank in logs.labels)
    return not logs.launched and not _may_be_launchers(logs)


def _may_be_launchers(logs: Logs) -> bool:
    """One task on each host that is named, and at least two ranks for each task: it may have started those of its host.

    Lines with a task's label show further tasks.
    """
    hosts = [task.host for task in logs.tasks.values()]
    last = max((*logs.tasks, *logs.labelled_tasks), default=None)
    if last is None or len(set(hosts)) < len(hosts):
        return False
    return max(logs.ranks, default=0) + 1 >= 2 * (last + 1)


def taken(ranks: set[int], logs: Logs) -> Iterator[str]:
    """That tasks count as ranks, where no line names both."""
    if ranks & logs.tasks.keys() - logs.failures.keys() and not logs.labels:
        yield "task numbers of Slurm are taken as ranks: no line names both, or tells of a launcher such as torchrun"


def unplaced(logs: Logs) -> Iterator[Reaped]:
    """Tasks that are no ranks: of launchers those that were killed, since other ends follow from their processes'."""
    if tasks_are_ranks(logs):
        return
    known = logs.launched or bool(logs.labels)
    for number, task in _failed(logs):
        code, name = _exit_code(task), f"Task {number} of Slurm on {task.host}"
        if code == _KILL or not known:
            told = _LAUNCHER if known else _NOT_KNOWN
            yield Reaped(number, None, code, _text(task, logs), name=name, told=told)


def _failed(logs: Logs) -> Iterator[tuple[int, Task]]:
    """Tasks that no one has ended: those that end later than the step does are ended with it."""
    for number, task in logs.tasks.items():
        late = task.late and not task.said.startswith(_OUT_OF_MEMORY)
        if not late and not task.said.startswith(_ASKED):
            yield number, task


def _exit_code(task: Task) -> int | None:
    if code := _CODE.match(task.said):
        return of_shell(int(code[1]))
    return next((number for words, number in _SIGNALS.items() if task.said.startswith(words)), None)


def _text(task: Task, logs: Logs) -> str:
    told = "" if _CODE.match(task.said) else f"srun says: {task.said}"
    if not logs.out_of_memory or _exit_code(task) != _KILL or _OUT_OF_MEMORY in told:
        return told
    return f"{told}; {LACK_OF_MEMORY}" if told else LACK_OF_MEMORY


def said(logs: Logs) -> Iterator[str]:
    """What Slurm says of the memory of steps."""
    yield from (
        f"Slurm says that a process of step {step} was killed for lack of memory" for step in logs.out_of_memory
    )


def is_of_memory(text: str) -> bool:
    """The words on a process that was killed for lack of memory, of the kernel or of Slurm."""
    return "lack of memory" in text or _OUT_OF_MEMORY in text


def of_shell(exit_code: int) -> int:
    """What a shell says of a command that a signal has ended, as the negative number of that signal."""
    return 128 - exit_code if 128 < exit_code <= 128 + _LAST_SIGNAL else exit_code


def _numbers(listed: str) -> Iterator[int]:
    """0,3-5 as 0, 3, 4, 5"""
    for part in filter(None, listed.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), min(int(last or first), int(first) + (1 << 17)) + 1)
