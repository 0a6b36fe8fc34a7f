"""What NCCL says of a job, in sentences for a report's evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hangwatch.model import NcclCommunicator, NcclLaunched, NcclView, NodeFacts
from hangwatch.words import ranks as named

MOST = 6  # sentences


def of_nodes(nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    """What NCCL says, by the first node that was told of something: each node is told of the whole job."""
    return next((found for node in nodes if node.nccl is not None and (found := sentences(node.nccl))), ())


def sentences(view: NcclView) -> tuple[str, ...]:
    """Sentences on what is of note, the most telling first; none where nothing is."""
    found = [f"NCCL ({view.version}) calls {process} dead" for process in view.dead_processes]
    for communicator in view.of_note:
        found += of_communicator(communicator)
    return tuple(found[:MOST])


def of_communicator(found: NcclCommunicator) -> Iterator[str]:
    """The same of one communicator."""
    where = _place(found)
    if found.dead:
        yield f"NCCL calls {_ranks(found, found.dead)} of {where} dead: no answer to its RAS threads"
    if silent := [rank for rank in found.missing if rank not in found.dead]:
        yield f"{_ranks(found, silent)} of {where} did not answer NCCL's RAS threads in time"
    by_error: dict[str, list[int]] = {}
    for rank, error in found.errors.items():
        by_error.setdefault(error, []).append(rank)
    for error, ranks in by_error.items():
        yield f"NCCL reports an error on {_ranks(found, ranks)} of {where}: {error}"
    if found.initialising:
        yield f"{_ranks(found, found.initialising)} of {where} still set it up"
    if found.aborted:
        yield f"{where} has been aborted on {_ranks(found, found.aborted)}"
    yield from _counts(found, where)


def _counts(found: NcclCommunicator, where: str) -> Iterator[str]:
    by_op: dict[str, list[NcclLaunched]] = {}
    for each in found.launched:
        by_op.setdefault(each.op, []).append(each)
    for op, counts in by_op.items():
        parts = [f"{each.count} by {_owner(found, each)}" for each in counts[:4]]
        yield f"NCCL has launched different numbers of {op} in {where}: {', '.join(parts)}"


def _owner(found: NcclCommunicator, each: NcclLaunched) -> str:
    if len(each.ranks) == each.number:
        return _ranks(found, each.ranks)
    return f"{each.number} ranks"


def _place(found: NcclCommunicator) -> str:
    size = f" of {found.size} ranks" if found.size else ""
    return f"the communicator{size}"


def _ranks(found: NcclCommunicator, ranks: Iterable[int]) -> str:
    """The job's ranks where all are known, else those of the communicator."""
    local = sorted(ranks)
    if found.members and all(0 <= rank < len(found.members) and found.members[rank] >= 0 for rank in local):
        return named(sorted(found.members[rank] for rank in local))
    return f"{named(local)} (by the communicator's own numbers)"
