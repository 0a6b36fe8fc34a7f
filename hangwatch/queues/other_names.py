"""One group under two names, or one name with other members.

torch numbers a process's groups in the order in which it makes them. By its name a communicator finds its other members
in the store. Members that have made another number of groups before have it under another name, and never meet the
rest. Members that made the groups of the same ranks in another order meet the rest in the wrong one: what they call a
group tells so, where the program describes its groups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

from hangwatch import words
from hangwatch.model import Certainty, Frame, Stage

from .finding import Finding, collective, victims, wait_edges
from .follow import Chain
from .model import Communicator, Queues
from .names import at, ranks, say
from .stuck import Kind, Stuck

_Order = tuple[tuple[str, str], ...]  # the groups of the same ranks, each by its name and its description
_SAME_MEMBERS = "give new_group the same ranks on every rank: compute the lists of all groups, not only of the own one"
_FIX = "call new_group for every group on every rank, in one order, outside of any condition"


def under_other_names(queues: Queues, chain: Chain) -> Finding | None:
    """The finding on a stuck call in a group that other members have under another name."""
    for one in (*chain.roots, *chain.path):
        orders = _orders(queues, one.group)
        if len(orders) > 1:
            return _in_other_orders(queues, one, orders, chain)
        if (other := _of_other_members(queues, one)) is not None:
            return _unlike_members(queues, one, other, chain)
        parts = _parts(queues, one.group)
        if len(parts) > 1 and one.waiting:
            return _found(queues, one, parts, chain)
    return _before_its_first_call(queues, chain)


def _before_its_first_call(queues: Queues, chain: Chain) -> Finding | None:
    """The awaited ranks have one group with different members: its set-up blocks them, and leaves no call on record."""
    root = chain.roots[0]
    if chain.circle or root.kind is not Kind.ABSENT:
        return None
    unused: dict[str, list[Communicator]] = {}
    for each in queues.communicators:
        if _users(each) and not (each.guessed or _is_used(each)):
            unused.setdefault(each.name, []).append(each)
    for one, other in (pair for same in unused.values() for pair in combinations(same, 2)):
        users = _users(one), _users(other)
        meet = users[0] & set(other.members) or users[1] & set(one.members)
        apart = one.members != other.members and users[0].isdisjoint(users[1])
        if apart and meet and users[0] | users[1] <= set(root.awaited):
            return _of_set_up(queues, root, (one, other), chain)
    return None


def _is_used(group: Communicator) -> bool:
    return any(map(len, (*group.lanes.values(), *group.peers.values())))


def _of_set_up(queues: Queues, root: Stuck, groups: tuple[Communicator, Communicator], chain: Chain) -> Finding:
    sides = sorted(groups, key=lambda each: -len(_users(each)))
    odd = _odd([_users(each) for each in sides]) or list(root.awaited)
    told = [(ranks(_users(each)), ranks(each.members), len(_users(each))) for each in sides[::-1]]
    held = words.listed(f"{who} {words.verb(many, 'has', 'have')} it with {members}" for who, members, many in told)
    return Finding(
        "new-group-mismatch",
        Certainty.LIKELY,
        f"{words.capital(sides[0].title)} does not have the same members on all ranks: {held}. Its first call does not"
        f" return then; {ranks(root.awaited)} never enqueued {collective(root)}{at(root.call)}, for which"
        f" {say(root.waiting, 'waits', 'wait')}.",
        stage=Stage.START,
        culprits=tuple((rank, None) for rank in odd),
        victims=victims(chain.path, odd),
        evidence=tuple(f"{sides[0].title} is of {members} in the {queues.record} of {who}" for who, members, _ in told),
        waits=wait_edges(root),
        fix=_SAME_MEMBERS,
    )


def _orders(queues: Queues, group: Communicator) -> dict[_Order, list[int]]:
    """Which ranks made the groups of these members under which names, where all describe the same ones."""
    same = [each for each in queues.communicators if each.members == group.members and not each.guessed]
    if not any(each.described for each in same):
        return {}
    found: dict[_Order, list[int]] = {}
    for rank in sorted(set[int]().union(*map(_users, same))):
        own = [(each.name, each.described_by(rank)) for each in same if rank in _users(each)]
        found.setdefault(tuple(sorted(own)), []).append(rank)
    alike = {tuple(sorted(description for _, description in order)) for order in found}
    descriptions = next(iter(alike))
    told = len(alike) == 1 and all(descriptions) and len(set(descriptions)) == len(descriptions)
    return found if told else {}


def _in_other_orders(queues: Queues, one: Stuck, orders: dict[_Order, list[int]], chain: Chain) -> Finding:
    sides = sorted(orders.items(), key=lambda side: -len(side[1]))
    odd = _odd([who for _, who in sides])
    members = words.ranks(one.group.members)
    unlike = {name for order, _ in sides[1:] for name, said in order if (name, said) not in sides[0][0]}
    named = [
        f"{ranks(who)}: {', '.join(f'group {name} is {said!r}' for name, said in order if name in unlike)}"
        for order, who in sides
    ]
    return Finding(
        "new-group-mismatch",
        Certainty.LIKELY,
        f"The groups of {members} were made in another order ({'; '.join(named[:2])}), and torch pairs them by their"
        f" number: the calls of one meet those of another, and {say(one.waiting, 'waits', 'wait')}{at(one.call)}.",
        stage=Stage.START,
        culprits=tuple((rank, None) for rank in odd),
        victims=victims(chain.path or chain.roots, odd),
        evidence=tuple(f"in the {queues.record} of {each}" for each in named[: words.SHOWN]),
        fix=_FIX,
    )


def _of_other_members(queues: Queues, one: Stuck) -> Communicator | None:
    """The group of that name as other ranks have it: with other members, and one of them, at least, among these."""
    common = set(one.group.members) & queues.ranks
    return next(
        (
            each
            for each in queues.communicators
            if each.name == one.group.name
            and each.members != one.group.members
            and common & set(each.members)
            and not (each.guessed or one.group.guessed)
            and _users(each)
            and _users(each).isdisjoint(_users(one.group))
        ),
        None,
    )


def _unlike_members(queues: Queues, one: Stuck, other: Communicator, chain: Chain) -> Finding:
    """Two lists of members under one name. Odd is the one that takes a rank out of a group which all of it have."""
    groups = sorted((one.group, other), key=lambda each: each.members)
    odd = [each for each in groups if _takes_from_another(queues, each)]
    blamed = sorted(_users(odd[0])) if len(odd) == 1 else []
    has = [f"{say(_users(each), 'has', 'have')} it with" for each in groups]
    held = [f"{said} {ranks(each.members)}" for said, each in zip(has, groups, strict=True)]
    return Finding(
        "new-group-mismatch",
        Certainty.LIKELY,
        f"{words.capital(one.group.title)} does not have the same members on all ranks: {words.listed(held)}."
        f" {say(one.waiting, 'waits', 'wait', capital=True)} in"
        f" {collective(one)}{at(one.call)} for ranks that never come to it.",
        stage=Stage.START,
        culprits=tuple((rank, _line(queues, other if other in odd else one.group, rank)) for rank in blamed),
        victims=victims(chain.path or chain.roots, blamed),
        evidence=tuple(
            f"{one.group.title} is of {ranks(each.members)} in the {queues.record} of {ranks(_users(each))}"
            for each in groups
        ),
        waits=wait_edges(one),
        fix=_SAME_MEMBERS,
    )


def _takes_from_another(queues: Queues, group: Communicator) -> bool:
    """Whether a member that does not have the group is in another one, of as many ranks, that all its members have."""
    lacking = set(group.members) & queues.ranks - _users(group)
    return any(
        len(each.members) == len(group.members)
        and each.name != group.name
        and set(each.members) <= _users(each)
        and lacking & set(each.members)
        and each.description == group.description
        for each in queues.communicators
    )


def _line(queues: Queues, group: Communicator, rank: int) -> Frame | None:
    lane = group.lanes.get(rank)
    return queues.call(lane, 0).where if lane is not None and len(lane) else None


def _parts(queues: Queues, group: Communicator) -> list[Communicator]:
    """The communicators of the same members that no rank has twice, those of most ranks first."""
    named = (each for each in queues.communicators if each.members == group.members and not each.guessed)
    same = [each for each in named if _users(each)]
    users = [rank for each in same for rank in _users(each)]
    return sorted(same, key=lambda each: -len(_users(each))) if len(users) == len(set(users)) else []


def _odd(sides: Sequence[Collection[int]]) -> list[int]:
    """The ranks of all sides but the first, where that is larger than each of the others; else none."""
    usual, *others = sides
    return sorted(rank for each in others for rank in each) if len(usual) > max(map(len, others)) else []


def _users(group: Communicator) -> set[int]:
    return group.lanes.keys() | group.peers.keys()


def _found(queues: Queues, one: Stuck, parts: list[Communicator], chain: Chain) -> Finding:
    named = [(each.title, _users(each)) for each in parts]
    odd = _odd([who for _, who in named])
    held = [f"{say(who, 'has', 'have')} it as {name}" for name, who in named]
    members = words.ranks(one.group.members)
    return Finding(
        "new-group-mismatch",
        Certainty.LIKELY,
        f"The group of {members} was made in another order: {words.listed(held)}. By its name a group finds its"
        f" members: {say(one.waiting, 'waits', 'wait')} in"
        f" {collective(one)}{at(one.call)} for ranks that never come to it.",
        stage=Stage.START,
        culprits=tuple((rank, None) for rank in odd),
        victims=victims(chain.path or chain.roots, odd),
        evidence=tuple(f"in the {queues.record} of {ranks(each)}, {name} is of {members}" for name, each in named),
        waits=wait_edges(one),
        fix=_FIX,
    )
