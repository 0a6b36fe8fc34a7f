"""The lines of one attempt in one log, given to the readers of all formats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from . import (
    barrier,
    behind,
    desync,
    elastic,
    events,
    going_on,
    kernel,
    last_words,
    mpirun,
    nccl,
    pods,
    ras_answers,
    ray_deaths,
    ray_errors,
    remote_start,
    rendezvous,
    schedulers,
    shell,
    slurm,
    spawn,
    stacks,
    task_lines,
    tracebacks,
    watchdog,
)
from .model import Logs

MARKS = tuple(
    mark.encode()
    for each in (
        watchdog,
        desync,
        nccl,
        elastic,
        barrier,
        rendezvous,
        slurm,
        spawn,
        tracebacks,
        kernel,
        mpirun,
        pods,
        events,
        ras_answers,
        ray_deaths,
        ray_errors,
        remote_start,
        schedulers,
        stacks,
    )
    for mark in each.MARKS
)
# What launchers and containers put before a line.
_LABEL = re.compile(
    r"(?:\[[a-z]+\d+\]:"  # torchrun --tee
    r"| *\d+: "  # srun --label
    r"|\[\d+,\d+\]<std(?:out|err)>: ?"  # mpirun --tag-output
    r"|\([^()]*pid=\d+[^()]*\) "  # Ray
    r"|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] )?"  # Kubernetes
    r")+(?=.)"
)
_OWN_LABEL = re.compile(r"^\[rank\d+\]: ?")
_OWN = re.compile(r"\[rank\d+\]:")  # torch's own: its words begin there, whatever stands before
_COLOR = re.compile(r"\x1b\[[\d;]*m")


def bare(line: str) -> str:
    """The line without what a launcher puts before it; torch's own `[rank3]:` stays."""
    if "\x1b" in line:
        line = _COLOR.sub("", line)
    if "[rank" in line and (own := _OWN.search(line)):
        return line[own.start() :]
    label = _LABEL.match(line)
    return line[label.end() :] if label else line


def without_rank(line: str) -> str:
    """The line without torch's own `[rank3]:`."""
    return _OWN_LABEL.sub("", line) if line.startswith("[rank") else line


class Attempt:
    """Takes the lines of one log, one after another; `rank` is that of the file, where its name tells."""

    def __init__(self, rank: int | None, logs: Logs, path: Path | None = None) -> None:
        self._rank, self._logs = rank, logs
        self._table, self._late, self._raised = elastic.Table(), barrier.Barrier(), tracebacks.Tracebacks()
        self._last, self._spawned, self._slurm = nccl.LastError(), spawn.Spawned(), slurm.Lines()
        self._on, self._said_last = going_on.GoingOn(logs), last_words.LastWords(rank)
        self._tasks, self._stacks = task_lines.TaskLines(), stacks.Stacks()
        self._mpirun, self._pods, self._listed = mpirun.Lines(), pods.Described(), pods.Listed()
        self._events, self._remote = events.Lines(), remote_start.Lines()
        self._shell, self._desync = shell.LastLine(rank), desync.Lines(rank)
        self._ras_said = ras_answers.Lines(path)
        self._ray, self._ray_deaths = ray_errors.Lines(), ray_deaths.Lines()
        self._behind = behind.Behind(self._raised)
        self.named = set[int]()  # the ranks that torch's prefixes name

    def take(self, lines: Iterable[str]) -> tuple[bool, int]:
        """Whether one of the lines is of use, and how many there are."""
        of_use, count = False, 0
        for whole in lines:
            of_use, count = self._take(whole) or of_use, count + 1
        return self._end() or of_use, count

    def _take(self, whole: str) -> bool:
        line = bare(whole)
        self._shell.take(line)
        told = self._of_ranks(whole, line) or self._of_others(line)
        told = self._ray.take(whole, line, self._logs) or self._ray_deaths.take(whole, line, self._logs) or told
        whose = last_words.rank_of(line, self._rank)
        if not told:
            self._behind.take(whose, without_rank(line), self._logs)
            self._slurm.goes_on(line, self._logs)
            self._ray.goes_on(line, self._logs)
            self._ray_deaths.goes_on(line, self._logs)
            self._remote.goes_on(line, self._logs)
        self._on.take(line, of_use=told)
        self._said_last.take(line, of_use=told)
        return told

    def _of_ranks(self, whole: str, line: str) -> bool:
        """A line may be of use to several of these."""
        logs, rank = self._logs, self._rank
        logs.launched = logs.launched or elastic.is_of_launcher(whole)
        told = self._desync.take(line, logs) or self._late.take(line, logs)
        told = told or watchdog.take(line, logs, rank) or nccl.take(line, logs, rank)
        of_task = rank is None and self._tasks.take(whole, line, logs)
        whose = last_words.rank_of(line, rank)
        if whose is not None and line.startswith("[rank"):
            self.named.add(whose)
        introduced = self._behind.introduced(whose)
        raised = not of_task and self._raised.take(line, logs, rank, introduced=introduced)
        stack = not of_task and self._stacks.take(without_rank(line), whose)
        told = told or stack
        return raised or self._last.take(line, logs, rank) or self._slurm.take(whole, logs) or told

    def _of_others(self, line: str) -> bool:
        logs = self._logs
        told = kernel.take(line, logs) or rendezvous.take(line, logs)
        told = told or self._spawned.take(line, logs) or self._table.take(line, logs)
        told = told or self._ras_said.take(line, logs) or self._remote.take(line, logs)
        return told or self._mpirun.take(line, logs) or self._of_pods(line) or schedulers.take(line, logs)

    def _of_pods(self, line: str) -> bool:
        told = self._pods.take(line, self._logs) or self._listed.take(line, self._logs)
        return self._events.take(line, self._logs) or told

    def _end(self) -> bool:
        """The file has ended; whether that told of a crash, or where ranks stand."""
        of_use = [self._raised.end(self._logs), self._stacks.end(self._logs)]  # both
        self._behind.end(self._logs)
        of_use += [self._tasks.end(self._logs), self._shell.end(self._logs), self._ras_said.end(self._logs)]
        self._said_last.end(self._logs)
        return any(of_use)
