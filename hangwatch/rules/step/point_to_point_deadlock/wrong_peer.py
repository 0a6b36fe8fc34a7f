"""A send or receive that names another peer than the rank that waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.messages.peer_totals import said_unserved
from hangwatch.facts.messages.rounds import left_habit
from hangwatch.facts.messages.wrong_peer import WrongPeer, wrong_peer
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def names_the_wrong_peer(case: Case) -> Finding | None:
    """One rank waits in a message with a peer that has no part in it, and another rank waits for that message."""
    found = wrong_peer(case)
    if found is None or (left_habit(case) is not None and not found.left_habit):
        return None
    rank, sends, (here, there) = found.rank, "send" in found.call.op, found.places
    does, lacks = (
        (f"sends to rank {found.named}", "receive from") if sends else (f"receives from rank {found.named}", "send to")
    )
    waits = f"receive from rank {rank}" if sends else f"send to rank {rank}"
    both = (f"{words.place(here)} with those of {words.place(there)}") if here != there else f"{words.place(here)}"
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {rank} {does}{words.at(here)}, which makes no {lacks} it, while rank {found.expected} waits to"
        f" {waits}{words.at(there)}: rank {rank} probably names the wrong peer.",
        fix=f"compare the peers at {both}: what a rank sends must name the rank that receives it, and the other way"
        " round",
        culprits=(case.ranks[rank].culprit(here),),
        victims=tuple(sorted(set(case.blocked) - {rank})),
        step=case.ranks[rank].step,
        evidence=(*_unserved(case, found), found.why, *_numbered_otherwise(case, found)),
    )


def _unserved(case: Case, found: WrongPeer) -> Iterator[str]:
    yield from filter(
        None, (said_unserved(case, found.call, found.rank), said_unserved(case, found.other, found.expected))
    )


def _numbered_otherwise(case: Case, found: WrongPeer) -> Iterator[str]:
    """`send` and `recv` take ranks of the job, also in a group whose members have numbers of their own."""
    for group in case.ledger.groups_of(found.rank):
        if found.expected in group.members and group.members.index(found.expected) == found.named:
            yield (
                f"rank {found.expected} has number {found.named} in group {group.name}: dst and src are ranks of the"
                " whole job, group_dst and group_src those of the group"
            )
            return
