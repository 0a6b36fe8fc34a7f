"""The others wait for ranks that compile."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.facts.processes.own_code import awaited_views, status_of
from hangwatch.model import Certainty, Status
from hangwatch.proof.waits import Blocked
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
        f"{case.say(culprits, 'still compiles', 'still compile', capital=True)}"
        f"{words.at(view.where)}; {case.wait_words(victims)} for it.",
        culprits=case.culprits(culprits),
        victims=victims,
        step=view.step,
        evidence=(f"rank {view.rank} is in {words.place(view.now.frame)}",),
        status=Status.WAITING if any(other.works for other in compilers) else status_of(case, compilers),
    )


def communicates_as_it_compiles(case: Case) -> Finding | None:
    """Few ranks compile, and wait in a call of their compiler for ranks that do not compile."""
    compilers = [rank for rank, entry in case.blocked.items() if _calls_in_compiler(entry)]
    others = [rank for rank in case.blocked if rank not in compilers]
    groups = [case.blocked[rank].group for rank in compilers]
    if not compilers or len(compilers) > len(others) or not case.all_wait:
        return None
    if not all(sites_of(case).regular(rank) and case.ranks[rank].now.guard != "rank" for rank in others):
        return None  # one of them may be the one that is where it should not be
    if any(group is None or group.member_set.isdisjoint(others) for group in groups):
        return None
    first = case.ranks[compilers[0]]
    return Finding(
        "compile-skew",
        Certainty.LIKELY,
        f"{case.say(compilers, 'compiles', 'compile', capital=True)} in {words.step(first.step) or 'this step'}, and"
        f" {words.verb(len(compilers), 'waits', 'wait')} there in {first.now.call}{words.at(first.where)} for ranks"
        f" that do not; {case.wait_words(others)} elsewhere{case.at_places(others)}.",
        culprits=case.culprits(compilers),
        victims=tuple(others),
        step=first.step,
        evidence=(f"the call of rank {first.rank} was made within its compiler, and that of no other rank",),
        fix="let all ranks compile in the same step: mark what varies as dynamic (torch._dynamo.mark_dynamic), or make"
        " no collective while a compiler runs",
    )


def _calls_in_compiler(entry: Blocked) -> bool:
    return entry.activity.in_collective and Within.COMPILE in entry.activity.within


def _compiles(view: RankView) -> bool:
    """It waits for a compiler that it has started."""
    return Within.COMPILE in view.now.within and view.now.doing in (Doing.JOIN_CHILD, Doing.LOCK, Doing.SOCKET)
