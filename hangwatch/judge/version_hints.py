"""Versions and devices that are known to hang, as hints beside a verdict: never a cause.

A hint is shown only where all that it is about is known of this job, where the verdict leaves room for it, and where
the known way out is not taken already. Each entry is dated: what a later version has put right falls out by its number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import restarted_with_its_store, settings_of
from hangwatch.model import Certainty, NodeFacts
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

SMALL_SHM = 128 << 20  # bytes; containers get 64 MiB if nothing is said
DEVICES = frozenset({"interconnect-stall", "device-stall", "undetermined"})
CONNECTING = frozenset(
    {"rank-died-before-init", "rendezvous-missing-ranks", "rendezvous-unreachable-master", "undetermined"}
)
WORKERS = frozenset({"loader-worker-died", "file-descriptors-exhausted", "undetermined"})
_GEFORCE = re.compile(r"GeForce RTX [45]0\d\d")


@dataclass(frozen=True)
class Known:
    """One entry: `applies` asks the evidence, `about` are the causes beside which it is shown."""

    since: str  # year and month in which it became known
    sentence: str
    source: str
    about: frozenset[str]
    applies: Callable[[Case], bool]


def hints(case: Case, finding: Finding) -> tuple[str, ...]:
    """Sentences about versions and devices of this job; none where the cause is proven."""
    if finding.certainty is Certainty.PROVEN:
        return ()
    return tuple(
        f"Hint, not the cause: {known.sentence} ({known.source}, {known.since})."
        for known in TABLE
        if finding.cause in known.about and known.applies(case)
    )


# ------------------------------------------------------------------------------------------ what is known of the job


def _uses_nccl(view: RankView) -> bool:
    heads = (*view.evidence.collectives.heads, *view.evidence.board_heads)
    return any(head.uses_nccl for head in heads)


def _torch(view: RankView) -> str:
    """`2.7.0` of "2.7.0+cu126"; "" where it is not known."""
    return view.reading.identity.torch_version.partition("+")[0] if view.reading is not None else ""


def _runs(*versions: str) -> Callable[[RankView], bool]:
    return lambda view: _torch(view) in versions and _uses_nccl(view)


def _is_set(name: str, value: str) -> Callable[[RankView], bool]:
    return lambda view: settings_of(view).get(name) == value


def _any(*conditions: Callable[[RankView], bool]) -> Callable[[Case], bool]:
    """One rank fulfils all of `conditions`."""
    return lambda case: any(all(fulfilled(view) for fulfilled in conditions) for view in case)


def _no(condition: Callable[[RankView], bool]) -> Callable[[RankView], bool]:
    return lambda view: not condition(view)


def _nodes_with(case: Case, name: re.Pattern[str]) -> Iterator[NodeFacts]:
    """Nodes on which ranks use several GPUs of this name between which NCCL may send directly."""
    disabled = _is_set("NCCL_P2P_DISABLE", "1")
    used = {(view.evidence.host, view.evidence.gpu) for view in case if not disabled(view)}
    for node in case.snapshot.nodes:
        if len([gpu for gpu in node.gpus if (node.host, gpu.index) in used and name.search(gpu.name)]) > 1:
            yield node


def _driver_545(case: Case) -> bool:
    return any(node.driver.startswith("545.") for node in _nodes_with(case, re.compile("RTX 4090")))


def _geforce(case: Case) -> bool:
    return any(True for _ in _nodes_with(case, _GEFORCE))


def _small_shm(case: Case) -> bool:
    """Loader workers pass their batches through a /dev/shm of a container's default size."""
    small = {node.host for node in case.snapshot.nodes if node.shm_total is not None and node.shm_total <= SMALL_SHM}
    return any(view.evidence.host in small and view.evidence.workers for view in case)


TABLE = (
    Known(
        "May 2025",
        "torch 2.7.0 can hang in NCCL where init_process_group was given a device_id: take 2.7.1 or later, or set"
        " TORCH_NCCL_USE_COMM_NONBLOCKING=0",
        "pytorch#153960",
        DEVICES,
        _any(_runs("2.7.0"), _no(_is_set("TORCH_NCCL_USE_COMM_NONBLOCKING", "0"))),
    ),
    Known(
        "March 2023",
        "the NCCL of torch 1.13 and 2.0.0 can hang with CUDA_LAUNCH_BLOCKING=1: unset it, or take torch 2.0.1 or later",
        "pytorch#97843",
        DEVICES,
        _any(_runs("1.13.0", "1.13.1", "2.0.0"), _is_set("CUDA_LAUNCH_BLOCKING", "1")),
    ),
    Known(
        "February 2024",
        "NVIDIA driver 545 hangs in direct transfers between RTX 4090: take another driver, or set NCCL_P2P_DISABLE=1",
        "lightning#19425",
        DEVICES,
        _driver_545,
    ),
    Known(
        "March 2023",
        "GeForce RTX 40 and 50 cards do not support direct transfers between GPUs, and some drivers say that they do:"
        " try NCCL_P2P_DISABLE=1",
        "nccl-tests#117",
        DEVICES,
        _geforce,
    ),
    Known(
        "September 2024",
        "after a restart by torchrun, init_process_group can find the addresses of the attempt before in the store that"
        " torchrun shares with its workers: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun, which heeds it with"
        " --rdzv-backend=c10d or --standalone",
        "pytorch#135712",
        CONNECTING,
        _any(restarted_with_its_store),
    ),
    Known(
        "2017",
        f"/dev/shm holds {SMALL_SHM >> 20} MiB at most here, and loader workers pass batches through it: docker run"
        " --shm-size=8g",
        "pytorch#1355",
        WORKERS,
        _small_shm,
    ),
)
