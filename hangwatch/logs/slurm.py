"""What srun says of tasks that failed: a task is a rank where the labels of torch's own lines say so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .model import Failure, Logs

MARKS = ("srun: error: ", "slurmstepd: error: ***")
_ENDED = re.compile(r"srun: error: \S+: tasks? ([\d,-]+): (.*\S)")
_CANCELLED = re.compile(r"slurmstepd: error: \*\*\* (JOB|STEP) \S+ ON (\S+) CANCELLED AT \S+(?: DUE TO ([A-Z ]+))?")
_NODE = re.compile(r"srun: error: Node failure on (\S+)")
_CODE = re.compile(r"Exited with exit code (\d+)")
_SIGNALS = {"Out Of Memory": -9, "Killed": -9, "Segmentation fault": -11, "Bus error": -7, "Floating point": -8}
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


def take(line: str, logs: Logs) -> bool:
    """Keep what a whole line says, its label too. False for a line of no use."""
    if line[:1] in _DIGITS and (labelled := _LABELLED.match(line)):
        logs.labels.add((int(labelled[1]), int(labelled[2])))
        return False
    if "slurmstepd" in line and (cancelled := _CANCELLED.search(line)):
        logs.ended_by[_cancelled(cancelled[1].lower(), cancelled[3])] = None
        return True
    if "srun: error: " not in line:
        return False
    if failed := _NODE.search(line):
        logs.ended_by[f"Slurm says that node {failed[1]} failed"] = None
        return True
    found = _ENDED.search(line)
    if found is None:
        return False
    for task in _numbers(found[1]):
        logs.tasks.setdefault(task, found[2])
    return True


def _cancelled(what: str, reason: str | None) -> str:
    return f"Slurm cancelled the job ({reason.strip().lower()})" if reason else f"Slurm cancelled the {what}"


def failures(logs: Logs) -> Iterator[Failure]:
    """Tasks that failed by themselves, where tasks are ranks."""
    if not logs.labels or any(task != rank for task, rank in logs.labels):
        return
    for task, said in logs.tasks.items():
        if said.startswith(_ASKED):
            continue
        code = _CODE.match(said)
        signal = next((number for words, number in _SIGNALS.items() if said.startswith(words)), None)
        text = f"srun says: {said}" if code is None else ""
        yield Failure(task, exit_code=of_shell(int(code[1])) if code else signal, text=text)


def of_shell(exit_code: int) -> int:
    """What a shell says of a command that a signal has ended, as the negative number of that signal."""
    return 128 - exit_code if 128 < exit_code <= 128 + _LAST_SIGNAL else exit_code


def _numbers(listed: str) -> Iterator[int]:
    """0,3-5 as 0, 3, 4, 5"""
    for part in filter(None, listed.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), min(int(last or first), int(first) + (1 << 17)) + 1)
