"""What PBS, LSF, torchrun and Lightning say of a job that they ended, or of a process that they saw end."""

from __future__ import annotations

import re

from .model import Failure, Logs

MARKS = ("PBS: job killed", "job killed after reaching LSF", "SignalException: Process ", "Child process with PID ")
_PBS = re.compile(r"PBS: job killed: (\S.*\S)")
_LSF = re.compile(r"TERM_\w+: job killed after reaching LSF (\S.*?)\.?\s*$")
_SIGNAL = re.compile(
    r"^torch\.distributed\.elastic\.multiprocessing\.api\.SignalException: Process \d+ got signal: (\d+)"
)
_LIGHTNING = re.compile(r"\[rank: (\d+)\] Child process with PID (\d+) terminated with code (-?\d+)")


def take(line: str, logs: Logs) -> bool:
    """Keep what a line says. False for a line of no use."""
    if not any(mark in line for mark in MARKS):
        return False
    if found := _LIGHTNING.search(line):
        rank, pid, code = (int(part) for part in found.groups())
        logs.noticed.setdefault(rank, Failure(rank, pid=pid, exit_code=code, first=True))
        logs.noticed_by.setdefault(rank, "Lightning")
        return True
    said = _ended_by(line)
    if said:
        logs.ended_by[said] = None
    return bool(said)


def _ended_by(line: str) -> str:
    if found := _PBS.search(line):
        return f"PBS ended the job ({found[1]})"
    if found := _LSF.search(line):
        return f"LSF ended the job ({found[1]})"
    found = _SIGNAL.match(line)
    return f"torchrun was told to end (signal {found[1]})" if found else ""
