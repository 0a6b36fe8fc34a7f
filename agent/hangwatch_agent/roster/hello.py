"""What a node tells of itself once, and again when it changes: its ranks, their groups, and their plans."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.health import plan_of
from hangwatch.model import GroupHead, GroupMembers, Identity, Job, NodeHello
from hangwatch.wire import members
from hangwatch_agent.roster.rank_states import RankState


def hello(job: Job, host: str, started_at: float, rank_states: Sequence[RankState], version: str) -> NodeHello:
    """The message; `started_at` is seconds since 1970."""
    readings = [each.reading for each in rank_states]
    groups = {group.id: group for reading in readings for group in map(_group, reading.heads)}
    ranks = tuple(reading.identity for reading in readings)
    plans = tuple(plan_of(reading) for reading in readings if reading.identity.rank is not None)
    return NodeHello(_described(job, ranks), host, started_at, ranks, tuple(groups.values()), version, plans)


def _group(head: GroupHead) -> GroupMembers:
    id = members.identifier(head.name, head.members)
    return GroupMembers(id, head.name, members.text(head.members), head.description, head.backend)


def _described(job: Job, ranks: Sequence[Identity]) -> Job:
    """The job with what only the ranks know of it."""
    sizes = [rank.world_size for rank in ranks if rank.world_size is not None]
    launcher = next((rank.launcher for rank in ranks if rank.launcher), "")
    command = next((rank.command for rank in ranks if rank.command), "")
    return Job(
        id=job.id,
        name=job.name,
        world_size=max(sizes, default=job.world_size),
        launcher=job.launcher or launcher,
        command=job.command or command,
        started_at=job.started_at,
        nodes_expected=job.nodes_expected,
    )
