"""A destructor that does not return while the interpreter is taken down."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.leaving import how_it_stands, leaving
from hangwatch.model import Phase
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.lingering import cannot_exit
from hangwatch.stacks.activity import Within


def destructor(case: Case) -> Finding | None:
    """An object's destructor runs while the interpreter is taken down, or once all groups are destroyed."""
    held = [view for view in leaving(case) if Within.DESTRUCTOR in view.main.within or view.phase is Phase.FINALIZING]
    if not held:
        return None
    view = held[0]
    what = f"the destructor at {words.place(view.where)}" if view.where else "a destructor of native code"
    return cannot_exit(
        case,
        "exit-destructor",
        held,
        f"{what} does not return",
        sure=Within.DESTRUCTOR in view.main.within,
        evidence=tuple(
            f"rank {each.rank} (pid {each.pid}) {_at_its_end(each)}{words.at(each.where)}: {how_it_stands(each)}"
            for each in held[: words.SHOWN]
        ),
    )


def _at_its_end(view: RankView) -> str:
    return "has destroyed its groups" if view.phase is Phase.DESTROYED else "is taking its interpreter down"
