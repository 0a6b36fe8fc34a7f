"""Readings and states of ranks for tests of the watchdog, with only what a test cares about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hangwatch.model import GroupHead, Identity, Phase, Progress, Reading, StepTimes
from hangwatch_agent.roster.rank_states import RankState


def reading(rank: int = 0, *, world_size: int = 2, pid: int | None = None, **parts: Any) -> Reading:
    """A reading of a rank in the middle of its training, at step 5, ten seconds old."""
    identity = Identity(
        rank=rank,
        world_size=world_size,
        local_rank=rank,
        host="node-a",
        pid=1000 + rank if pid is None else pid,
        started_at=1.0,
        job="job",
        environment=parts.pop("environment", {}),
    )
    parts.setdefault("phase", Phase.BACKWARD)
    parts.setdefault("progress", Progress(epoch=0, batch=5, step=5, optimizer_steps=5, at=10.0))
    parts.setdefault("times", StepTimes(steps=5, slowest_recent_s=0.01))
    return Reading(identity=identity, taken_at=20.0, phase_at=10.0, **parts)


def blocked(members: tuple[int, ...] = (0, 1)) -> tuple[GroupHead, ...]:
    """Heads of a rank that has issued more than has been completed."""
    return (GroupHead("0", members, issued=12, completed=11),)


def rank_state(
    rank: int = 0, *, moved_at: float = 10.0, state: str = "S", since: float = 0.0, **parts: Any
) -> RankState:
    """The state of a rank with such a reading."""
    found = reading(rank, **parts)
    made = RankState(Path(f"rank-{found.identity.pid}-7.board"), found, moved_at, state, since)
    return replace(made, slowest_s=found.times.slowest_recent_s)
