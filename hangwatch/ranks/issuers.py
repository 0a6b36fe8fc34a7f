"""Which thread of a rank issued a call: the one that trains, or one in the background, whose calls come at any time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from hangwatch.model import Collective, Divergence
from hangwatch.ranks.flight_recorder import AUTOGRAD
from hangwatch.ranks.ledger import Ledger

MAIN = "MainThread"
SHOWN = 4  # ranks of each side that show whether a background thread communicates at all: all run one program
# The recorder names threads as the system does: those of the autograd engine, and the main one by the program.
UNNAMED = re.compile(rf"|{AUTOGRAD}_\d+|python[\d.]*")


def is_by_a_named_thread(call: Collective) -> bool:
    """A thread of the program's own issued it, beside the main one."""
    return not UNNAMED.fullmatch(call.thread_name) and call.thread_name != MAIN


def issuer(ledger: Ledger, rank: int, call: Collective) -> str:
    """The Python thread on whose behalf `call` was issued: the engine computes gradients for the one that trains."""
    named = not UNNAMED.fullmatch(call.thread_name)
    return call.thread_name if named else training_thread(ledger, rank, call.group)


def training_thread(ledger: Ledger, rank: int, group: str) -> str:
    """The thread that trains: the main one if it ever communicates, else the one with most calls in that group."""
    calls = [call for call in ledger.calls(rank).values() if call.group == group]
    if MAIN in ledger.issuers(rank) or any(_in_the_program(call) for call in calls):
        return MAIN
    named = Counter(call.thread_name for call in calls if not UNNAMED.fullmatch(call.thread_name))
    return named.most_common(1)[0][0] if named else MAIN


def _in_the_program(call: Collective) -> bool:
    """Its stack begins with the program's own file, and not with the start of a thread."""
    return bool(call.frames) and call.frames[-1].function == "<module>"


def issuers(ledger: Ledger, rank: int, group: str) -> set[str]:
    """The threads of `rank` that have issued recorded calls in `group`."""
    calls = ledger.calls(rank).values()
    return {issuer(ledger, rank, call) for call in calls if call.group == group}


def in_background(ledger: Ledger, rank: int, group: str) -> Iterator[Collective]:
    """The recorded calls of `rank` in `group` that another thread than the training one issued."""
    training = training_thread(ledger, rank, group)
    for call in ledger.calls(rank).values():
        if call.group == group and issuer(ledger, rank, call) != training:
            yield call


def even_without_background(ledger: Ledger, divergence: Divergence) -> bool:
    """Without the calls of background threads all ranks issued the same number in that step.

    Then the ranks do not diverge in it: a background thread reaches a step earlier on one rank than on another.
    """
    sides: dict[int, list[int]] = {}
    for rank, count in divergence.counts.items():
        sides.setdefault(count, []).append(rank)
    shown = (rank for ranks in sides.values() for rank in ranks[:SHOWN])
    if not any(any(in_background(ledger, rank, divergence.group)) for rank in shown):
        return False
    left, background = set(), False
    for rank, count in divergence.counts.items():
        first, last = ledger.span(rank, divergence.group, divergence.step) or (0, 0)
        calls = sum(first < call.seq <= last for call in in_background(ledger, rank, divergence.group))
        background = background or calls > 0
        left.add(count - calls)
    return background and len(left) == 1
