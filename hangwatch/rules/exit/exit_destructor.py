"""A destructor that does not return while the interpreter is taken down."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.leaving import how_it_stands, leaving, lingering_status
from hangwatch.model import Certainty, Phase
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Within


def destructor(case: Case) -> Finding | None:
    """An object's destructor runs while the interpreter is taken down."""
    held = [view for view in leaving(case) if Within.DESTRUCTOR in view.main.within or view.phase is Phase.FINALIZING]
    if not held:
        return None
    ranks = [view.rank for view in held]
    view = held[0]
    what = f"the destructor at {words.place(view.where)}" if view.where else "a destructor of native code"
    return Finding(
        "exit-destructor",
        Certainty.PROVEN if Within.DESTRUCTOR in view.main.within else Certainty.LIKELY,
        f"Training is over, but {case.name(ranks)} cannot exit: {what} does not return.",
        culprits=tuple(each.culprit() for each in held),
        victims=(),
        evidence=tuple(
            f"rank {each.rank} (pid {each.pid}) is taking its interpreter down{words.at(each.where)}:"
            f" {how_it_stands(each)}"
            for each in held[: words.SHOWN]
        ),
        status=lingering_status(held),
        awaited=tuple(ranks),
    )
