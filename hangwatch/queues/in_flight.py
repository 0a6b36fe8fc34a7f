"""Calls of two communicators that are open at once on the same ranks: their kernels may wait for each other.

Hosts that enqueue both in one order do not settle in which order devices run them: each communicator has its own
stream. Where one device runs the first and another the second, and neither has room for both, none completes.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Stage

from .finding import Finding, collective
from .follow import Chain
from .model import Queues
from .names import at, ranks
from .stuck import Kind, Stuck

_CAME = (Kind.HELD, Kind.WIRE, Kind.QUEUED)
_TOGETHER = 2  # ranks that both calls have in common, at least
_OPEN_SHOWN = 2  # that are open beside it: a mesh may have many
FIX = (
    "let the second call wait for the first on every rank (work.wait() before it, or one stream for both), or make both"
    " in one group; CUDA_DEVICE_MAX_CONNECTIONS=1 keeps the hosts' order where they launch from one stream"
)


def beside(root: Stuck, opened: Sequence[Stuck]) -> list[Stuck]:
    """The collectives of other groups to which all came and that are open as well, on two ranks of `root` at least."""
    return [
        each
        for each in opened
        if each.group is not root.group
        and not (each.peers or root.peers)
        and each.kind in _CAME
        and len(set(each.waiting) & set(root.waiting)) >= _TOGETHER
    ]


def running(root: Stuck, opened: Sequence[Stuck]) -> list[Stuck]:
    """Those of which a device has begun the other call, and may lack room for `root`'s."""
    return [each for each in beside(root, opened) if not set(each.begun).isdisjoint(root.waiting)]


def crossed(queues: Queues, chain: Chain) -> Finding | None:
    """One device has begun the first call and not the second, another one the second and not the first."""
    root = chain.roots[0]
    for other in running(root, chain.opened) if root.kind is Kind.HELD and not chain.circle else ():
        ours, theirs = set(root.begun), set(other.begun)
        first, second = sorted(ours & set(other.awaited)), sorted(theirs & set(root.awaited))
        if other.kind is Kind.HELD and first and second:
            return _crossed(root, other, first, second)
    return None


def _crossed(root: Stuck, other: Stuck, first: list[int], second: list[int]) -> Finding:
    one, two = (f"{collective(each)}{at(each.call)}" for each in (root, other))
    have = [f"the {words.verb(len(who), 'device', 'devices')} of {ranks(who)}" for who in (first, second)]
    begun = [words.verb(len(who), "has", "have") for who in (first, second)]
    both = sorted({*root.waiting, *other.waiting})
    return Finding(
        "group-order-cycle",
        Certainty.LIKELY,
        f"{words.capital(have[0])} {begun[0]} started {one} and not {two}, and {have[1]} {begun[1]} started the second"
        " and not the first: the devices wait for each other. All hosts enqueued both.",
        stage=Stage.DEVICE,
        passing=True,
        victims=tuple(both),
        evidence=(
            f"{one}: started on {ranks(root.begun)}, only enqueued on {ranks(root.awaited)}",
            f"{two}: started on {ranks(other.begun)}, only enqueued on {ranks(other.awaited)}",
        ),
        alternatives=(
            Alternative(
                "device-stall",
                Certainty.UNDETERMINED,
                f"a kernel of its own may keep each of the devices of {ranks([*first, *second])} from the other call",
            ),
        ),
        fix=FIX,
    )


def told(others: Sequence[Stuck]) -> tuple[str, ...]:
    """What is open beside it, as evidence."""
    return tuple(
        f"open at the same time: {collective(each)}{at(each.call)}, {_state(each)} {ranks(each.waiting)}"
        for each in others[:_OPEN_SHOWN]
    )


def _state(one: Stuck) -> str:
    if one.kind is Kind.QUEUED and not one.begun:
        return "enqueued on"
    return "started on" if one.kind is Kind.WIRE else f"started on {ranks(one.begun)}, enqueued on"


def alternatives(root: Stuck, others: Sequence[Stuck]) -> tuple[Alternative, ...]:
    if not others:
        return ()
    groups = words.listed([each.group.title for each in (root, *others[:_OPEN_SHOWN])])
    said = f"calls of {groups} are open at once: their kernels may wait for each other on the devices"
    return (Alternative("group-order-cycle", Certainty.UNDETERMINED, said),)
