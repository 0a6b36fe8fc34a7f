"""A rank repeated forward and backward passes in some of its steps, and failed when the others had ended."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.more_forwards import more_forwards
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding
from hangwatch.rules.turns import decides, equal_turns, which_ends

_FIX = "make as many forward and backward passes for each update on every rank: let all ranks vote on one more"


def repeated_until_the_end(case: Case) -> Finding | None:
    """Its last calls were none that the others had left out: it had made too many before."""
    found = more_forwards(case)
    if found is None:
        return None
    first = case.ranks[found.ranks[0]]
    loop = first.now.loop if first.now.loop is not None and first.now.loop.outer and decides(first.now.loop) else None
    extra, made = found.extra[first.rank], first.reading.progress if first.reading is not None else None
    passes = words.plural(extra, "training forward")
    needed = words.plural(found.usual * found.updates, "training forward")
    by = f", in the loop at {words.place(loop.where)}, {which_ends(loop)}" if loop is not None else ""
    counts = f"{made.step + 1:,} for {made.optimizer_steps:,} updates and the one that it is in" if made else ""
    who, ended = case.name(found.ranks, capital=True), case.name(found.ended)
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"{who} made {passes} more than its updates need in earlier steps{by}: since then its calls were paired with"
        f" later ones of the other ranks, and when {ended} had made all their steps it failed{words.at(first.where)}.",
        fix=equal_turns(loop) if loop is not None else _FIX,
        culprits=case.culprits(found.ranks, loop.leaves[0] if loop is not None and len(loop.leaves) == 1 else None),
        victims=(),
        step=case.furthest_step(found.ranks),
        evidence=(
            f"rank {first.rank} has begun {counts}",
            f"{ended} made {needed} for {words.plural(found.updates, 'update')}, and ended as they should",
        ),
        status=Status.FAILED,
    )
