"""Stacks of ranks in files: what py-spy and faulthandler have written while the job stood."""

from __future__ import annotations

from collections import defaultdict

from hangwatch.stacks import texts
from hangwatch.stacks.texts import FAULTHANDLER, Texts

from .going_on import Turns
from .model import Logs, Written
from .tracebacks import MARKS as TRACEBACKS

MARKS = (FAULTHANDLER, '(idle): "MainThread"', '(active): "MainThread"', '(active+gil): "MainThread"')
_CRASH = TRACEBACKS[-1]


class Stacks:
    """Takes the lines of one log, one after another. A rank that goes on behind its stacks has moved."""

    def __init__(self) -> None:
        self._texts = defaultdict[int | None, Texts](Texts)
        self._turns = defaultdict[int | None, Turns](Turns)
        self._crashed = set[int | None]()

    def take(self, line: str, rank: int | None) -> bool:
        """Whether a line, without the prefix of its rank, is one of a stack."""
        if line.startswith(_CRASH):
            self._crashed.add(rank)
        if rank in self._crashed or not (
            rank in self._texts or line.startswith(("Thread ", "Current thread ", "Process "))
        ):
            return False
        known = self._texts[rank]
        if known.take(line):
            self._turns.pop(rank, None)
            return known.dump is not None and bool(known.dump.threads)
        if self._turns[rank].take(line):
            del self._texts[rank]
        return False

    def end(self, logs: Logs) -> bool:
        """The file has ended; whether it holds a stack of use."""
        found = False
        for rank, known in self._texts.items():
            stacks = known.dump.stacks() if known.dump is not None else ()
            if any(stack.frames for stack in stacks) and rank not in self._crashed:
                _keep(rank, (known.dump.pid if known.dump is not None else None, stacks), logs)
                found = True
        return found


def of_json(content: bytes, rank: int | None, logs: Logs) -> bool:
    """Keep the stacks that `py-spy dump --json` wrote. False where it is something else."""
    written = texts.of_json(content) if content.startswith(b"[") else None
    if written is not None:
        _keep(rank, written, logs)
    return written is not None


def _keep(rank: int | None, written: Written, logs: Logs) -> None:
    if rank is None:
        logs.stacks_of_none.append(written)
    else:
        logs.stacks[rank] = written
        logs.ranks.add(rank)
