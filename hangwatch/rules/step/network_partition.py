"""All ranks are in the same operation, with the same number and size: the cause lies outside of the processes."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, Socket
from hangwatch.rules.finding import Finding


def network_partition(case: Case) -> Finding | None:
    """All ranks have arrived, and bytes between two hosts stay unacknowledged."""
    if not case.blocked or case.awaited() or not _all_arrived(case):
        return None
    stuck = [
        (view.rank, view.evidence.host, socket)
        for view in case
        if view.evidence.process is not None
        for socket in view.evidence.process.sockets
        if _undelivered(socket)
    ]
    if not stuck:
        return None
    hosts = sorted({host for _, host, _ in stuck if host})
    peers = sorted({socket.remote.rpartition(":")[0] for _, _, socket in stuck})
    between = (
        words.listed(hosts)
        if len(hosts) > 1
        else f"{words.listed(hosts or ['this host'])} and {words.listed(peers[:4])}"
    )
    return Finding(
        "network-partition",
        Certainty.LIKELY,
        f"{_all_came(case)}, and the network between {between} does not deliver:"
        f" {words.plural(sum(socket.unacknowledged for *_, socket in stuck), 'byte')} are not acknowledged.",
        victims=tuple(case.blocked),
        step=case.furthest_step(case.blocked),
        evidence=tuple(_unacknowledged(rank, socket) for rank, _, socket in stuck[: words.SHOWN]),
        awaited=tuple(case.ranks),
    )


def _all_came(case: Case) -> str:
    first = [rank for rank, entry in case.blocked.items() if entry.need is None]
    if len(first) == len(case.blocked):
        return "All ranks are in the same collective"
    return f"All ranks have issued the collective that {case.wait_words(first)} in"


def _unacknowledged(rank: int, socket: Socket) -> str:
    again = f", {words.plural(socket.retransmits, 'retransmit')}" if socket.retransmits else ""
    size = words.plural(socket.unacknowledged, "byte")
    return f"rank {rank}: {size} unacknowledged from {socket.local} to {socket.remote}{again}"


def _undelivered(socket: Socket) -> bool:
    """Bytes were sent again, and are not acknowledged. What only waits for a peer that does not read is not sent."""
    again = socket.unacknowledged > 0 and socket.retransmits > 0
    return again and socket.state in ("established", "fin_wait1", "close_wait", "syn_sent")


def _all_arrived(case: Case) -> bool:
    """All ranks wait, and some in a collective that all its members have issued; the others wait for those.

    One side may have received its part of the last collective, and be in the next one already.
    """
    complete = any(entry.need is None for entry in case.blocked.values())
    return complete and len(case.blocked) == len(case.ranks) and not case.deadlocked
