"""The truth about a simulated job, computed from its state and not from any evidence of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .faults import Fault
from .machine import Machine
from .ranks import Rank


@dataclass(frozen=True)
class Truth:
    """What is true of a job at one moment.

    `alive`: some rank that has not ended makes progress, if everything slow that can end comes to its end. `fired` are
    the faults that have taken effect until then. `guilty` are their ranks, `causes` what a right verdict may name.
    """

    alive: bool
    fired: tuple[Fault, ...]
    finished: bool  # every rank has ended as it should
    running: frozenset[int] = frozenset()  # ranks that run their own code at this moment, and may rightly be awaited

    @property
    def guilty(self) -> frozenset[int]:
        return self.running | {rank for fault in self.fired for rank in fault.ranks}

    @property
    def causes(self) -> tuple[str, ...]:
        awaited = ("user-code-blocked",) if self.running else ()
        return (*(cause for fault in self.fired for cause in fault.causes), *awaited)

    @property
    def kind(self) -> str:
        return " + ".join(fault.kind for fault in self.fired) or "none"


def fired(machine: Machine, faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """The faults that have taken effect until now."""
    return tuple(fault for index, fault in enumerate(faults) if index in machine.fired)


def can_go_on(machine: Machine) -> bool:
    """Runs the job on, without limits and with every slow act finishing, until a rank makes progress or none can.

    A thread beside the main one that comes to its end is no progress, unless it completes a call. What still arrives
    for a rank that has ended, or that is stopped, is none either: it lets no program go on.
    """
    before = [_progress(rank) for rank in machine.ranks]
    machine.run()
    if [_progress(rank) for rank in machine.ranks] != before:
        return True
    while machine.finish():
        machine.run()
        if [_progress(rank) for rank in machine.ranks] != before:
            return True
    return False


def _progress(rank: Rank) -> tuple[int, bool]:
    runs = rank.living and rank.state != "T"
    return rank.moves if runs else 0, runs


def finished(machine: Machine) -> bool:
    """Every rank has ended with exit code 0."""
    return all(rank.code == 0 for rank in machine.ranks)
