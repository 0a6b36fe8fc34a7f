"""What NCCL's RAS threads say of ranks: they run in each rank without Python, and answer while its host waits.

A rank that does not answer them is dead, stopped, or cannot be reached: which of these, they cannot tell. So this
supports what hangwatch sees itself, and is never the only evidence against a process that is seen to live.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hangwatch.facts.case import Case
from hangwatch.model import NcclCommunicator


def given_up(case: Case) -> tuple[int, ...]:
    """The job's ranks that NCCL calls dead."""
    return tuple(sorted({rank for found in _communicators(case) for rank in _ranks(found, found.dead)}))


def answer(case: Case, ranks: Iterable[int]) -> bool:
    """NCCL reports a communicator that has all of these ranks as members, and all of them answered there."""
    wanted = set(ranks)
    return any(
        wanted <= set(found.members) and wanted.isdisjoint(_ranks(found, found.missing))
        for found in _communicators(case)
        if wanted
    )


def _communicators(case: Case) -> Iterator[NcclCommunicator]:
    for node in case.snapshot.nodes:
        if node.nccl is not None:
            yield from node.nccl.of_note


def _ranks(found: NcclCommunicator, local: Iterable[int]) -> set[int]:
    """The job's ranks for ranks of the communicator, where they are known."""
    members = found.members
    return {members[rank] for rank in local if 0 <= rank < len(members) and members[rank] >= 0}
