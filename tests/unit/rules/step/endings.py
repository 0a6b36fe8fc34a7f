"""Ranks that failed or ended, without a hang."""

from __future__ import annotations

from typing import Any

from hangwatch.model import (
    ExceptionFacts,
    Frame,
    Phase,
    Progress,
    RankEvidence,
    StepEntry,
)
from tests.unit.job import (
    NOW,
    SCRIPT,
    gone,
)
from tests.unit.simulator import TORCH

DDP = f"{TORCH}/nn/parallel/distributed.py"
CLOSED = "Connection closed by peer [127.0.0.1]:59549"
USER = (Frame(SCRIPT, 13, "evaluate"), Frame(SCRIPT, 30, "main"))


def failed(number: int, *inner: tuple[str, int, str], forwards: int = 0, message: str = CLOSED) -> RankEvidence:
    frames = (*(Frame(*frame) for frame in inner), *USER)
    error = ExceptionFacts("RuntimeError", message, frames, at=NOW - 12)
    progress = Progress(step=5, epoch=0, batch=5, forwards=forwards)
    return gone(number, 1, Phase.FAILED, exception=error, progress=progress)


def ended(number: int, phase: Phase = Phase.FINALIZING, *, step: int = 5, forwards: int = 6) -> RankEvidence:
    return gone(number, 0, phase, progress=Progress(step=step, epoch=0, batch=5, forwards=forwards))


def stepped(number: int, counts: list[int], *, head: int, code: int = -6, **parts: Any) -> RankEvidence:
    """A rank that died after these numbers of collectives in its steps; its last word says `head`."""
    issued = [sum(counts[:step]) for step in range(len(counts) + 1)]
    steps = tuple(StepEntry(step, 0, step, 0, NOW - 20, {"0": before}) for step, before in enumerate(issued))
    progress = Progress(step=len(counts), epoch=0, batch=len(counts))
    return gone(number, code, Phase.STEP, issued=head, completed=head, steps=steps, progress=progress, **parts)
