"""A signal handler that waits for what the interrupted code holds."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.model import Certainty
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing

HANDLER_WAITS = frozenset({Doing.CODE, Doing.LOCK, Doing.COLLECTIVE, Doing.JOIN_CHILD, Doing.PIPE, Doing.SOCKET})


def signal_handler_deadlock(case: Case) -> Finding | None:
    """A signal handler waits above the code that it interrupted."""
    waiting = [view for view in case if view.main.handler and not view.works and view.main.doing in HANDLER_WAITS]
    if not waiting:
        return None
    view = waiting[0]
    culprits = [other.rank for other in waiting]
    victims = case.victims(culprits)
    tail = f"; {case.wait_words(victims)} for it" if victims else ""
    return Finding(
        "signal-handler-deadlock",
        Certainty.LIKELY,
        f"{case.say(culprits, 'stands', 'stand', capital=True)} in the signal handler"
        f" {view.main.handler}{words.at(view.where)}, {_handler_waits(view)}{tail}.",
        culprits=case.culprits(culprits),
        victims=victims,
        step=view.step,
        evidence=(
            f"{view.main.handler} is registered with signal.signal and stands above the code that it interrupted",
        ),
    )


def _handler_waits(view: RankView) -> str:
    if view.main.in_collective:
        return f"in {view.main.call or 'a collective'} that the other ranks have not called"
    return "which waits for what the interrupted code holds"
