"""The ranks of a snapshot, each as a view."""

from __future__ import annotations

from hangwatch.model import Snapshot
from hangwatch.ranks.view import RankView


def views_of(snapshot: Snapshot) -> list[RankView]:
    """A view of each rank of a snapshot, in its order."""
    return [RankView(entry.rank, entry, snapshot.sampled_twice) for entry in snapshot.ranks]
