"""One group under two names: torch numbers a process's groups in the order in which it makes them.

By its name a communicator finds its other members in the store. Members that have made another number of groups before
have it under another name, and never meet the rest.
"""

from __future__ import annotations

from hangwatch import words
from hangwatch.model import Certainty, Stage

from .finding import Finding, collective, victims, wait_edges
from .follow import Chain
from .model import Communicator, Queues
from .names import at, ranks
from .stuck import Stuck


def under_other_names(queues: Queues, chain: Chain) -> Finding | None:
    """The finding on a stuck call in a group that other members have under another name."""
    for one in (*chain.roots, *chain.path):
        parts = _parts(queues, one.group)
        if len(parts) > 1 and one.waiting:
            return _found(queues, one, parts, chain)
    return None


def _parts(queues: Queues, group: Communicator) -> list[Communicator]:
    """The communicators of the same members that no rank has twice, those of most ranks first."""
    same = [each for each in queues.communicators if each.members == group.members and _users(each)]
    users = [rank for each in same for rank in _users(each)]
    return sorted(same, key=lambda each: -len(_users(each))) if len(users) == len(set(users)) else []


def _users(group: Communicator) -> set[int]:
    return group.lanes.keys() | group.peers.keys()


def _found(queues: Queues, one: Stuck, parts: list[Communicator], chain: Chain) -> Finding:
    named = [(each.title, _users(each)) for each in parts]
    (_, usual), *others = named
    most = len(usual) > max(len(each) for _, each in others)
    odd = sorted(rank for _, each in others for rank in each) if most else []
    held = [f"{ranks(who)} {words.verb(len(who), 'has', 'have')} it as {name}" for name, who in named]
    members = words.ranks(one.group.members)
    return Finding(
        "new-group-mismatch",
        Certainty.LIKELY,
        f"The group of {members} was made in another order: {words.listed(held)}. By its name a group finds its"
        f" members: {ranks(one.waiting)} {words.verb(len(one.waiting), 'waits', 'wait')} in"
        f" {collective(one)}{at(one.call)} for ranks that never come to it.",
        stage=Stage.START,
        culprits=tuple((rank, None) for rank in odd),
        victims=victims(chain.path or chain.roots, odd),
        evidence=tuple(f"in the {queues.record} of {ranks(each)}, {name} is of {members}" for name, each in named),
        waits=wait_edges(one),
        fix="call new_group for every group on every rank, in one order, outside of any condition",
    )
