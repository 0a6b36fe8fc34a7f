"""No shared memory is left for a batch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.data_waits import feedings
from hangwatch.model import Certainty, Culprit, NodeFacts
from hangwatch.ranks.view import RankView
from hangwatch.rules.failed_workers import KILLED, certainty_of, resource, worker_error
from hangwatch.rules.finding import Finding

CAUGHT = re.compile(r"Caught \w+ in DataLoader worker process (\d+)")
BUS_ERROR = re.compile(r"bus error", re.IGNORECASE)
NO_SHARED_MEMORY = re.compile(
    r"no space left on device.*(/torch_|/dev/shm|shared memory)"
    r"|(/torch_|/dev/shm|shared memory).*no space left on device"
    r"|unable to (resize|mmap|allocate) .*shared memory|out of shared memory|insufficient shared memory",
    re.IGNORECASE | re.DOTALL,
)


SHM_LEFT = 0.02  # share of /dev/shm below which it counts as full
SHM_LEFT_BYTES = 1 << 20  # bytes; even a small /dev/shm with as little free has no room for a batch


def shared_memory_exhausted(case: Case) -> Finding | None:
    """Workers found no room in /dev/shm: as their errors say, or as a full one and a waiting rank show."""
    hit = [view for view in case if NO_SHARED_MEMORY.search(worker_error(view)) or _bus_error(view)]
    full = [node for node in case.snapshot.nodes if _is_full(node)]
    starved = [each.view for each in feedings(case) if full and each.in_trouble]
    if not hit and not starved:
        return None
    sizes = [f"/dev/shm on {node.host}: {_bytes(node.shm_free)} of {_bytes(node.shm_total)} free" for node in full]
    return resource(
        case,
        "shared-memory-exhausted",
        hit or starved,
        f"the workers found no room in /dev/shm{_room(full)}",
        certainty_of(hit[0]) if hit and (full or NO_SHARED_MEMORY.search(worker_error(hit[0]))) else Certainty.LIKELY,
        sizes,
        tuple(culprit for view in hit for culprit in _failed_workers(view)),
    )


def _failed_workers(view: RankView) -> Iterator[Culprit]:
    """The workers that its error names, by pid or by index."""
    text = worker_error(view)
    killed, caught = KILLED.search(text), CAUGHT.search(text)
    pids = [int(pid) for pid in re.findall(r"\d+", killed[1])] if killed is not None else []
    if caught is not None:
        index = int(caught[1])
        pids += [loader.worker_pids[index] for loader in view.loaders if index < len(loader.worker_pids)][:1]
    for pid in pids:
        yield Culprit(view.rank, pid, view.evidence.host, process="loader-worker")


def _bus_error(view: RankView) -> bool:
    match = KILLED.search(worker_error(view))
    return match is not None and BUS_ERROR.search(match[2] or "") is not None


def _is_full(node: NodeFacts) -> bool:
    if node.shm_total is None or node.shm_free is None:
        return False
    return node.shm_free < max(SHM_LEFT * node.shm_total, min(SHM_LEFT_BYTES, node.shm_total / 2))


def _room(nodes: Iterable[NodeFacts]) -> str:
    sizes = [node.shm_total for node in nodes if node.shm_total]
    return f", which has {_bytes(min(sizes))} in all" if sizes else ""


def _bytes(count: int | None) -> str:
    if count is None:
        return "?"
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return words.plural(count, "byte")
