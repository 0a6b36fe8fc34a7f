"""Numbers of batched sends and receives, as torch before 2.6 counts them: among the collectives of their group.

There each batch raises the number of collectives, and none of its calls that of sends and receives: all batches of a
rank seem to be one, and where a rank left one out, its collectives seem to be others than those of its peers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from hangwatch.queues.model import Lane


def count(entries: Sequence[Mapping[str, Any]], peers: Lane, collectives: Lane | None) -> None:
    """Give each batch a number of its own, and the collectives those that they have without batches.

    Where older calls are lost, the collectives keep their numbers: how many batches came before is not known.
    """
    ends = [place for place, order in enumerate(peers.order) if _is_end(entries[order])]
    after = (place + 1 for place in ends if place + 1 < len(peers))
    if all(peers.numbers[place] != peers.numbers[place - 1] for place in after):
        return
    for place, order in enumerate(peers.order):
        peers.numbers[place] += int(entries[order].get("collective_seq_id") or 0)
    if collectives is None or peers.lost:
        return
    batches = [peers.order[place] for place in ends]
    for place, order in enumerate(collectives.order):
        collectives.numbers[place] -= bisect_left(batches, order)


class Ends:
    """Tells ends of batches from those of coalesced collectives, of which torch before 2.6 says alike: no peers."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, Any]] = {}  # the numbers of a group's last send or receive

    def are_of_peers(self, group: str, entry: Mapping[str, Any], p2p: bool) -> bool:
        """Whether the next entry of `group` is of sends and receives: `p2p` says so, or it ends a batch of them."""
        if not (p2p or (self._last and _is_end(entry))):
            return False
        numbers = (entry["collective_seq_id"], entry["p2p_seq_id"])
        if not p2p:
            return self._last.get(group) == numbers
        self._last[group] = numbers
        return True


def _is_end(entry: Mapping[str, Any]) -> bool:
    return str(entry["profiling_name"]).endswith(":coalesced")
