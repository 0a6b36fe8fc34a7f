"""Hosts that wait on their device. With NCCL a call only queues its work: the host runs on, and waits somewhere else.

Such a wait spins, so the processor's use says nothing, and `.item()` has no Python frame: a native frame shows it, the
rank's own or that of another rank which stands in the very same Python frames. Without one, outstanding work under a
steady stack makes a rank that probably waits, and never a proof.
"""

from __future__ import annotations

import re

from hangwatch.model import Frame
from hangwatch.ranks.ledger import Group, Ledger
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Activity, Doing

Path = tuple[Frame, ...]
_CALLS = frozenset(
    {Doing.COLLECTIVE, Doing.WORK_WAIT, Doing.BACKWARD, Doing.RENDEZVOUS, Doing.NEW_GROUP, Doing.DESTROY}
)
COPIES_S = 10.0  # seconds, where a host launches or copies: one line of a program seldom copies for longer
QUEUES = re.compile(r"(cuda:)?nccl(_\w+)?")  # NCCL, and backends that are registered as variants of it


def queued(ledger: Ledger, rank: int) -> list[tuple[Group, int]]:
    """(group, first incomplete number) of each communicator of a device in which `rank` has work that is not done."""
    return [(group, low) for group, low, _ in ledger.outstanding(rank) if on_device(group, rank)]


def on_device(group: Group, rank: int) -> bool:
    """The group's collectives are all queued on a device: with two backends it is not known which one counted."""
    return QUEUES.fullmatch(group.heads[rank].backend.lower()) is not None


def python_frames(view: RankView) -> Path:
    """The Python frames of the main thread, which are equal on ranks that wait at the same place."""
    return tuple(frame for frame in view.evidence.main_stack if not frame.native)


def shows_device_wait(now: Activity) -> bool:
    """A frame says so: torch's own function that synchronises, or the driver's below the user's line."""
    return now.doing is Doing.DEVICE or now.spins


def may_wait_on_device(view: RankView) -> bool:
    """It stands in the user's own line, as far as Python frames say, which is where `.item()` leaves a rank.

    Or it stands in a call of torch.distributed or in backward and takes a processor, which a barrier does that waits
    for the device, the making of a communicator, its end, and a backward whose launches find no room in a queue.
    """
    now = view.now
    in_a_call = now.doing in _CALLS and view.cpu is not None and not view.idle
    return in_a_call or (now.doing is Doing.CODE and now.where is not None and now.frame == now.where)


def worth_confirming(views: list[RankView], ledger: Ledger) -> list[RankView]:
    """One rank of each stack in which ranks with a device's groups stand, and where a native frame would tell more.

    Sends, receives and replayed graphs are outstanding without a count that says so.
    """
    found: dict[Path, RankView] = {}
    for view in views:
        if may_wait_on_device(view) and view.steady and _uses_a_device(ledger, view.rank):
            found.setdefault(python_frames(view), view)
    return list(found.values())


def _uses_a_device(ledger: Ledger, rank: int) -> bool:
    return any(on_device(group, rank) for group in ledger.groups_of(rank))
