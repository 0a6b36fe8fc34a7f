"""Awaited ranks that wait for a key of the job's store themselves: the rank that did not set it is not known."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.own_code import awaited_views, status_of
from hangwatch.facts.store_waits import gone_past, polls_store, store_ports, waits_for_key
from hangwatch.model import Certainty
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding


def waits_for_a_key(case: Case) -> Finding | None:
    """Every awaited rank is in `get` or `wait` of the store, so none of them is to blame for what it waits for."""
    views = awaited_views(case) or [
        view for view in case if not (view.dead or view.over or view.rank in case.blocked)
    ]  # of the root of a broadcast it is not known for whom it waits
    ports = store_ports(case)
    waiting_for_key = [view for view in views if waits_for_key(view, ports)]
    asking = [view for view in views if view not in waiting_for_key and polls_store(view)]
    if not views or len(views) < len(case.awaited()) or len(waiting_for_key) + len(asking) < len(views):
        return None
    ranks = tuple(view.rank for view in views)
    others = case.victims(ranks)
    waiting = (
        f"; {case.wait_words(others)} for {words.verb(len(ranks), 'it', 'them')}{words.at(case.usual_place(others))}"
    )
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(ranks, capital=True)} {_wait(views, polled=bool(asking))}{waiting if others else ''}.",
        fix="set the key on every way through the program, and wait for it with a timeout of its own",
        victims=tuple(case.ranks),
        step=views[0].step,
        evidence=(*(_stands(view) for view in views[: words.SHOWN]), *_passed(case, views)),
        status=status_of(case, views),
        awaited=ranks,
    )


def _wait(views: list[RankView], *, polled: bool) -> str:
    at, one = words.at(views[0].where), len(views) == 1
    if not polled:
        return f"{'waits' if one else 'wait'} for a key of the job's store{at}, which no rank has set yet"
    asks, has = ("asks", "has") if one else ("ask", "have")
    return f"{asks} the job's store again and again{at}, and {has} not found there what another rank has to set"


def _stands(view: RankView) -> str:
    return f"rank {view.rank} stands in {view.where.function if view.where else '?'}{words.at(view.where)}"


def _passed(case: Case, views: list[RankView]) -> tuple[str, ...]:
    past = tuple(sorted({rank for view in views for rank in gone_past(case, view)}))
    if not past:
        return ()
    gone = f"{case.name(past)} {words.verb(len(past), 'is', 'are')} on a later line{words.at(case.usual_place(past))}"
    return (f"{gone}, and may have had to set it",)
