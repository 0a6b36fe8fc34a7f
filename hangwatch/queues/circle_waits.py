"""What is known of the waits in a circle of ranks before anyone is blamed."""

from __future__ import annotations

from .edges import edges_of, inside_of, last_in_circle
from .follow import Chain
from .history import Histories
from .model import Queues
from .stuck import Kind


class Circle:
    """Its waits, the ranks in it and those concerned, and whether all calls of theirs are on record."""

    def __init__(self, queues: Queues, chain: Chain, histories: Histories) -> None:
        self.queues, self.chain, self.histories = queues, chain, histories
        self.edges = edges_of(chain)
        self.inside = inside_of(self.edges)
        self.until = last_in_circle(chain)
        self.messages = any(each.peers for each in chain.roots)
        self.counted = not any(each.peers and (each.kind is Kind.QUEUED or not each.counted) for each in chain.roots)
        self.concerned = chain.members & queues.ranks
        self.lost = _lost(chain)

    def blamed(self, stray: list[int]) -> list[int]:
        """The few that left an order; where those are none, or most, all ranks of the circle take part alike."""
        few = 0 < 2 * len(stray) <= len(self.concerned)
        return stray if few else sorted({*self.inside, *stray})

    def fewer(self, some: list[int]) -> list[int]:
        """These ranks, or where they are most of those concerned the others."""
        return some if 2 * len(some) <= len(self.concerned) else sorted(self.concerned - set(some))


def _lost(chain: Chain) -> bool:
    """Older calls are no longer recorded, among which one may have been left out: the circle is where that ended."""
    lanes = ((each.waiting, of_kind) for each in chain.roots for of_kind in (each.group.lanes, each.group.peers))
    return any(of_kind[rank].lost for waiting, of_kind in lanes for rank in waiting if rank in of_kind)
