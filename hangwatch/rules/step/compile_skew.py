"""The others wait for ranks that compile."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.own_code import awaited_views, status_of
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing, Within


def compile_skew(case: Case) -> Finding | None:
    """The others wait for ranks that compile."""
    compilers = [view for view in awaited_views(case) if view.now.doing is Doing.COMPILE or _compiles(view)]
    if not compilers:
        return None
    culprits = [view.rank for view in compilers]
    victims = case.victims(culprits)
    view = compilers[0]
    return Finding(
        "compile-skew",
        Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} still {words.verb(len(culprits), 'compiles', 'compile')}"
        f"{words.at(view.where)}; {case.wait_words(victims)} for it.",
        culprits=tuple(other.culprit() for other in compilers),
        victims=victims,
        step=view.step,
        evidence=(f"rank {view.rank} is in {words.place(view.now.frame)}",),
        status=Status.WAITING if any(other.works for other in compilers) else status_of(case, compilers),
    )


def _compiles(view: RankView) -> bool:
    """It waits for a compiler that it has started."""
    return Within.COMPILE in view.now.within and view.now.doing in (Doing.JOIN_CHILD, Doing.LOCK, Doing.SOCKET)
