"""What is said of the first step in which ranks issued different numbers of collectives."""

from __future__ import annotations

from hangwatch import words
from hangwatch.model import Divergence


def divergence_sentence(divergence: Divergence) -> str:
    """The step, and how many collectives each rank issued."""
    step = words.step(divergence.name)
    issued = {count: [] for count in divergence.counts.values()}  # type: dict[int, list[int]]
    for rank, count in divergence.counts.items():
        issued[count].append(rank)
    counts = ", ".join(f"{words.ranks(ranks)}: {count}" for count, ranks in sorted(issued.items()))
    return (
        f"in {step} the ranks issued different numbers of collectives ({counts}); "
        "from here on gradients may be wrong, and the job may hang"
    )
