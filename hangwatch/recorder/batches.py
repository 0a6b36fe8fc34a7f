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


def _is_end(entry: Mapping[str, Any]) -> bool:
    return str(entry["profiling_name"]).endswith(":coalesced")
