"""Every rank has enqueued the collective: a device that has not come to it, or a wire between those that have."""

from __future__ import annotations

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Stage, Status

from .departures import departed_in
from .finding import Finding, at, collective, ranks, victims, wait_edges, without_record
from .follow import Chain
from .history import Histories
from .model import Queues
from .stuck import Stuck


def held(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    """All have enqueued it, and some devices have not come to it: nothing of other groups is before it there."""
    root = chain.roots[0]
    few = 2 * len(root.awaited) <= len(root.group.members)
    return Finding(
        "device-stall",
        Certainty.LIKELY if few else Certainty.UNDETERMINED,
        f"{'Both' if root.peers else 'All'} ranks have enqueued {collective(root)}{at(root.call)}; the"
        f" {words.verb(len(root.awaited), 'device', 'devices')} of {ranks(root.awaited)}"
        f" {words.verb(len(root.awaited), 'has', 'have')} not started it, and no other collective is before it there:"
        " a kernel of its own does not finish.",
        stage=Stage.DEVICE,
        passing=True,
        culprits=tuple((rank, root.calls[rank].where if rank in root.calls else None) for rank in root.awaited)
        if few
        else (),
        victims=victims(chain.path, root.awaited),
        evidence=(
            f"started on {ranks(set(root.waiting) - set(root.awaited))}, only enqueued on {ranks(root.awaited)}",
            *without_record(root),
        ),
        waits=wait_edges(root),
    )


def wire(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    root = chain.roots[0]
    return Finding(
        "interconnect-stall",
        Certainty.LIKELY,
        f"Every device has started {collective(root)}{at(root.call)} with the same call, and none completes it: the"
        " network, the links between the GPUs, or a GPU; no code is to blame.",
        stage=Stage.DEVICE,
        passing=True,
        victims=tuple(sorted(root.waiting)),
        evidence=(f"{ranks(root.waiting)}: started, not completed, the same operation, size and type",),
        alternatives=tuple(
            Alternative(cause, Certainty.UNDETERMINED, "a dump does not show the network or the driver's log (Xid)")
            for cause in ("network-partition", "gpu-fault")
        ),
        fix="look at the links and the kernel log (nvidia-smi nvlink -s, ibstat, dmesg for Xid); set NCCL_DEBUG=INFO",
    )


def queued(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    """Enqueued by all, alike. Without start events it is not known which devices have started it."""
    root = chain.roots[0]
    before = departed_in(queues, root, histories)
    if before is not None:
        return before
    stands = root.expired or any(lane.completed > 0 for _, lane in queues.lanes())
    partly = f"not completed on {ranks(root.waiting)}" if _lagging(root) else "completed on none"
    unknown = (
        "no device is known to have started it"
        if queues.timed
        else "without start events it is not known which devices started it"
    )
    return Finding(
        "interconnect-stall" if stands else "undetermined",
        Certainty.UNDETERMINED,
        f"{collective(root)}{at(root.call)} is enqueued by {_by(root)}, alike, and {partly}; {unknown}.",
        status=Status.HUNG if stands else Status.WAITING,
        stage=Stage.DEVICE,
        passing=True,
        victims=tuple(sorted(root.waiting)),
        evidence=(f"{ranks(root.waiting)}: enqueued, not completed, the same operation, size and type",),
        alternatives=(
            Alternative("device-stall", Certainty.UNDETERMINED, "one device may be busy with a kernel of its own"),
        ),
        fix="set TORCH_NCCL_ENABLE_TIMING=1 to see which devices start it; look at the GPUs and links of these ranks",
    )


def _by(root: Stuck) -> str:
    """Which ranks have enqueued it: where nothing tells the group's size, others may belong to it and not have come."""
    if not root.group.guessed:
        return "all of its ranks"
    return f"{ranks(root.calls)}, all that these files tell of: ranks that they do not tell of may not have come"


def _lagging(root: Stuck) -> bool:
    return len(root.waiting) < len(root.group.lanes)
