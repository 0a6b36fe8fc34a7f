"""What is said of the first step in which ranks issued different numbers of collectives."""

from __future__ import annotations

from hangwatch import words
from hangwatch.model import Divergence
from hangwatch.ranks.sides import by_value


def divergence_sentence(divergence: Divergence) -> str:
    """The step, and how many collectives each rank issued."""
    step = words.step(divergence.name)
    issued = sorted(by_value(divergence.counts).items())
    counts = ", ".join(f"{words.ranks(ranks)}: {count}" for count, ranks in issued)
    return (
        f"in {step} the ranks issued different numbers of collectives ({counts}); "
        "from here on gradients may be wrong, and the job may hang"
    )
