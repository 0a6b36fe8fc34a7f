"""Every rank has enqueued the collective: a device that has not come to it, or a wire between those that have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Stage, Status

from . import in_flight
from .departures import departed_in
from .finding import Finding, collective, victims, wait_edges, without_record
from .follow import Chain
from .history import Histories
from .matching import shape
from .model import Queues
from .names import at, named, ranks, say
from .not_recorded import alternatives as not_recorded
from .not_recorded import lacking
from .split_sizes import odd_splits, sizes_differ, unlike_types
from .stuck import Stuck

_UNSEEN = tuple(
    Alternative(cause, Certainty.UNDETERMINED, "a dump does not show the network or the driver's log (Xid)")
    for cause in ("network-partition", "gpu-fault")
)
_IF_ALL_CAME = Alternative(
    "interconnect-stall", Certainty.UNDETERMINED, "these may be all ranks of the group: nothing tells how many it has"
)


def held(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    """All have enqueued it, and some devices have not come to it: nothing of other groups is before it there."""
    root = chain.roots[0]
    cut = [rank for rank in root.awaited if _begins_open(queues, rank) or not (root.peers or rank in root.order)]
    few = 2 * len(root.awaited) <= len(root.group.members) and not cut
    untold = queues.untimed & set(root.waiting)
    begun = set(root.waiting) - set(root.awaited) - untold
    running = [each for each in in_flight.running(root, chain.opened) if not set(each.begun).isdisjoint(root.awaited)]
    before = (
        f"the record of {ranks(cut)} does not show what is before it there"
        if cut
        else f"a call of {running[0].group.title} runs there, or a kernel of its own does not finish"
        if running
        else "no other collective is before it there: a kernel of its own does not finish"
    )
    return Finding(
        "undetermined" if cut else "device-stall",
        Certainty.LIKELY if few and not running else Certainty.UNDETERMINED,
        f"{_enqueued(queues, root)}; the {words.verb(len(root.awaited), 'device', 'devices')} of"
        f" {say(root.awaited, 'has', 'have')} not started it, and {before}.",
        stage=Stage.DEVICE,
        passing=True,
        culprits=root.at_lines(root.awaited) if few else (),
        victims=victims(chain.path, root.awaited),
        evidence=(
            f"started on {ranks(begun)}, only enqueued on {ranks(root.awaited)}",
            *([f"{ranks(untold)}: no start events are recorded"] if untold else []),
            *in_flight.told(running),
            *without_record(queues, root),
        ),
        alternatives=in_flight.alternatives(root, running),
        waits=wait_edges(root),
    )


def _begins_open(queues: Queues, rank: int) -> bool:
    """The oldest call that is recorded of a rank is not complete, and older ones are lost: one of them may be open."""
    lanes = [lane for _, lane in queues.lanes_of(rank) if len(lane)]
    first = min(lanes, key=lambda lane: lane.order[0], default=None)
    return first is not None and first.lost and not first.done(0)


def wire(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    root = chain.roots[0]
    if (odd := odd_splits(queues, chain)) is not None:
        return odd
    running = in_flight.running(root, chain.opened)
    lacks = lacking(root)
    doubt = f" Or the calls differ: these records do not hold {lacks}." if lacks else ""
    doubt += f" Or the calls differ: {unlike}." if (unlike := unlike_types(root)) else ""
    doubt += f" Or the kernels of {_groups(root, running)} wait for each other." if running else ""
    return Finding(
        "interconnect-stall",
        Certainty.UNDETERMINED if doubt else Certainty.LIKELY,
        f"{_started(root)}, and none completes it: the network, the links between the GPUs, or a GPU.{doubt}",
        stage=Stage.DEVICE,
        passing=True,
        victims=tuple(sorted(root.waiting)),
        evidence=(*_alike(root, "started, not completed"), *in_flight.told(running)),
        alternatives=(
            *not_recorded(root),
            *((Alternative("collective-mismatch", Certainty.UNDETERMINED, unlike),) if unlike else ()),
            *in_flight.alternatives(root, running),
            *_UNSEEN,
        ),
        fix="look at the links and the kernel log (nvidia-smi nvlink -s, ibstat, dmesg for Xid); set NCCL_DEBUG=INFO",
    )


def half_done(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    """Complete on some ranks, and on others not: all had enqueued it, so that no code of the program holds it up."""
    root, lanes = chain.roots[0], chain.roots[0].group.lanes
    done = [rank for rank in lanes if rank not in root.waiting and rank in root.calls]
    silent = [rank for rank in root.group.members if rank not in lanes or not lanes[rank].known]
    few = root.waiting if 2 * len(root.waiting) <= len(done) else ()
    started = bool(root.begun) and set(root.begun) == set(root.waiting)
    blamed, one = silent or few, len(root.waiting) == 1
    device, has, do = ("device", "has", "does") if one else ("devices", "have", "do")
    gone = f" No {queues.record} of {ranks(silent)}, which had come to it: it may have ended in it." if silent else ""
    return Finding(
        "rank-died" if silent else "interconnect-stall",
        Certainty.UNDETERMINED if silent else Certainty.LIKELY,
        f"{words.capital(collective(root))}{at(root.call)} is complete on {ranks(done)}, and the {device} of"
        f" {ranks(root.waiting)} {f'{has} started it and ' if started else ''}{do} not complete it: the network, the"
        f" links between the GPUs, or a GPU.{gone}",
        stage=Stage.DEVICE,
        culprits=root.at_lines(blamed),
        victims=root.waiting,
        evidence=(
            f"{ranks(done)}: completed",
            *_alike(root, f"{'started' if started else 'enqueued'}, not completed"),
        ),
        alternatives=_UNSEEN,
        fix="look at the links and the kernel log (nvidia-smi nvlink -s, ibstat, dmesg for Xid) where"
        f" {ranks(silent or root.waiting)} {words.verb(len(silent or root.waiting), 'runs', 'run')}; set"
        " NCCL_DEBUG=INFO",
    )


def _started(root: Stuck) -> str:
    if not root.peers:
        return f"Every device has started {collective(root)}{at(root.call)}, {_same(root)}"
    one, other = (f"that of rank {rank} {_end(root, rank)}" for rank in _sender_first(root))
    return f"Both devices have started their ends of a message, {one} and {other}"


def _same(root: Stuck) -> str:
    unlike = "sizes" if sizes_differ(root) else "types" if unlike_types(root) else ""
    return f"the same {f'operation, in unlike {unlike}' if unlike else 'call as far as it is recorded'}"


def _groups(root: Stuck, others: Sequence[Stuck]) -> str:
    return words.listed([each.group.title for each in (root, *others)])


def _enqueued(queues: Queues, root: Stuck) -> str:
    """That all came: of a message each rank has enqueued its own end."""
    if not root.peers:
        return f"{_all(queues, root)} have enqueued {collective(root)}{at(root.call)}"
    one, other = (f"rank {rank} has enqueued {_end(root, rank)}" for rank in _sender_first(root))
    return f"{words.capital(one)} and {other}"


def _sender_first(root: Stuck) -> list[int]:
    return sorted(root.peers, key=lambda rank: root.calls[rank].op != "send")


def _end(root: Stuck, rank: int) -> str:
    """its send of group 1 (pipe.py:44)"""
    return f"its {named(root.calls[rank], root.number, root.group)}{at(root.calls[rank])}"


def _all(queues: Queues, root: Stuck) -> str:
    """All ranks; of a group of which some left no record, those that did."""
    told = all(rank in root.group.lanes and root.group.lanes[rank].known for rank in root.group.members)
    return "All ranks" if told else f"All ranks whose {queues.record} tells of it"


def queued(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    """Enqueued by all, alike as far as it is recorded. Without start events no device is known to have started it."""
    root = chain.roots[0]
    before = departed_in(root, histories)
    if before is not None:
        return before
    if (odd := odd_splits(queues, chain)) is not None:
        return odd
    stands = root.expired or any(lane.completed > 0 for _, lane in queues.lanes())
    unknown = _known_of_the_start(queues, root)
    whole = root.peers or not root.group.guessed  # else others may not have come
    beside = in_flight.beside(root, chain.opened)
    return Finding(
        "interconnect-stall" if stands and whole else "undetermined",
        Certainty.UNDETERMINED,
        f"{_state_of(queues, root)}; {unknown}.",
        status=Status.HUNG if stands else Status.WAITING,
        stage=Stage.DEVICE,
        passing=True,
        victims=tuple(sorted(root.waiting)),
        evidence=(*_alike(root, "enqueued, not completed"), *in_flight.told(beside)),
        alternatives=(
            *not_recorded(root),
            *in_flight.alternatives(root, beside),
            Alternative("device-stall", Certainty.UNDETERMINED, "one device may be busy with a kernel of its own"),
            *(() if whole else (*_or_an_idle_rank(queues, root), _IF_ALL_CAME)),
        ),
        fix="set TORCH_NCCL_ENABLE_TIMING=1 to see which devices start it; look at the GPUs and links of these ranks",
    )


def _or_an_idle_rank(queues: Queues, root: Stuck) -> Iterator[Alternative]:
    """Where the size of a group is not known, few ranks that wait for nothing may belong to it, and not have come."""
    others = [rank for rank in sorted(queues.ranks) if rank not in root.group.members]
    idle = [rank for rank in others if all(lane.enqueued <= lane.completed for _, lane in queues.lanes_of(rank))]
    if 0 < 2 * len(idle) <= len(root.waiting):
        belong = words.verb(len(idle), "if it belongs to the group, it has", "if they belong to the group, they have")
        said = f"{say(idle, 'waits', 'wait')} for nothing: {belong} not come"
        yield Alternative("user-code-blocked", Certainty.UNDETERMINED, said)


def _state_of(queues: Queues, root: Stuck) -> str:
    if root.peers:
        return f"{_enqueued(queues, root)}, and neither is complete"
    return f"{_by(root)} and {_completed(root)}"


def _known_of_the_start(queues: Queues, root: Stuck) -> str:
    if root.begun:
        device = words.verb(len(root.begun), "the device", "the devices")
        return f"{device} of {ranks(root.begun)} started it, and without start events it is not known of the others"
    if queues.timed:
        return "no device is known to have started it"
    return "without start events it is not known which devices started it"


def _by(root: Stuck) -> str:
    """Which ranks have enqueued it: where nothing tells the group's size, others may belong to it and not have come."""
    what = f"{collective(root)}{at(root.call)} is enqueued"
    told = [rank for rank, lane in root.group.lanes.items() if lane.enqueued >= root.number]
    differ = sizes_differ(root) or unlike_types(root)
    alike = ", alike," if set(told or root.calls) <= root.calls.keys() and not differ else ""
    if not root.group.guessed:
        return f"{what} by all of its ranks{alike}"
    return f"{what} by {ranks(told or root.calls)} (others may belong to the group and not have come){alike}"


def _completed(root: Stuck) -> str:
    """completed on none, or by which ranks only"""
    members = root.peers or root.group.lanes
    done = sorted(rank for rank in members if rank not in root.waiting)
    return f"completed on {ranks(done)}, and not on {ranks(root.waiting)}" if done else "completed on none"


def _alike(root: Stuck, state: str) -> Iterator[str]:
    """What the records of the ranks that wait have in common, and of which of them the call itself is not recorded."""
    compared = [rank for rank in root.waiting if rank in root.calls]
    untold = [rank for rank in root.waiting if rank not in root.calls]
    calls = [root.calls[rank] for rank in compared]
    compared_by = [shape(call) for call in calls]
    facts = ["operation"]
    if all(one.given is not None or one.made is not None for one in compared_by):
        facts.append("size")
    if all(one.dtypes for one in compared_by):
        facts.append("type")
    same = f", the same {words.listed(facts)}" if len(compared) > 1 and not root.peers else ""
    if compared:
        yield f"{ranks(compared)}: {state}{same}"
    if untold:
        yield f"{ranks(untold)}: {state}, by the number alone: the call itself is not recorded"
