"""Stacks of ranks in files: what py-spy and faulthandler have written while the job stood."""

from __future__ import annotations

from collections import defaultdict

from hangwatch.stacks.texts import FAULTHANDLER, Texts

from .going_on import Turns
from .model import Logs
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
        texts = self._texts[rank]
        if texts.take(line):
            self._turns.pop(rank, None)
            return texts.dump is not None and bool(texts.dump.threads)
        if self._turns[rank].take(line):
            del self._texts[rank]
        return False

    def end(self, logs: Logs) -> bool:
        """The file has ended; whether it holds a stack of use."""
        found = False
        for rank, texts in self._texts.items():
            stacks = texts.dump.stacks() if texts.dump is not None else ()
            if any(stack.frames for stack in stacks) and rank not in self._crashed:
                _keep(rank, texts, logs)
                found = True
        return found


def _keep(rank: int | None, texts: Texts, logs: Logs) -> None:
    dump = texts.dump
    if dump is None:
        return
    if rank is None:
        logs.stacks_of_none.append((dump.pid, dump.stacks()))
    else:
        logs.stacks[rank] = (dump.pid, dump.stacks())
        logs.ranks.add(rank)
