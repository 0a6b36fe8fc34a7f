"""A value that differs by rank decided about a collective call: some ranks made it, others did not."""

from __future__ import annotations

from hangwatch import words
from hangwatch.catalogue.step import OUT_OF_CACHES
from hangwatch.facts.call_site import same
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import by_a_cache, condition, conditions, rank_check
from hangwatch.facts.case import Case
from hangwatch.facts.differences.counters import counts_apart
from hangwatch.facts.differences.decisions import Disagreement, disagreement, of_every_step
from hangwatch.facts.differences.parting import Left, counted
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.ranks.sides import odd_of, spread
from hangwatch.rules.finding import Finding
from hangwatch.rules.passed_meeting import went_by
from hangwatch.rules.step.rank_local_decision.advice import advice, of_a_counter, what_differs


def rank_local_decision(case: Case) -> Finding | None:
    """Ranks diverged at a condition that depends neither on the rank nor on what is the same on all of them."""
    found = disagreement(case)
    if found is None or not case.in_trouble or not (_decides(found) or _lets_some_in(case, found)):
        return None
    extra = found.found is not None and found.found.how is Left.EXTRA
    if of_every_step(case, found) or (sites_of(case).in_backward(found.made[0], found.place) and not extra):
        return None  # what belongs to every step was skipped, whatever the reason was
    if _for_other_ranks(case, found):
        return None
    return _finding(case, found)


def _for_other_ranks(case: Case, found: Disagreement) -> bool:
    """Further out a check of the rank leads to the call, and no rank without it has ever come there: that decided."""
    if rank_check(case, found.place.lines) is None:
        return False
    sites = sites_of(case)
    return not any(same(found.place, place) for rank in spread(found.without) for place in sites.before(rank))


def _decides(found: Disagreement) -> bool:
    """All ways past the call are conditions on a value, and guard that call and not the rest of the loop's turn."""
    own = {way.asks for way in found.ways} in ({"value"}, {"alike"}) and not any(way.of_turn for way in found.ways)
    return own and not found.of_a_module


def _lets_some_in(case: Case, found: Disagreement) -> bool:
    """Checks led the fewer ranks to a call that no rank had ever made: they hold as an exception, and so they decide.

    A check that data is there is meant to hold always, and then leads to a call of every step. Of rank 0 it may ask for
    what only that rank has, such as its logger.
    """
    if any(way.asks not in ("check", "value") or way.of_turn for way in found.ways) or found.of_a_module:
        return False
    few = 2 * len(found.made) < len(found.made) + len(found.without)
    return few and 0 not in found.made and found.found is None and not _was_made(case, found)


def _was_made(case: Case, found: Disagreement) -> bool:
    """A rank has made that call before, as far as recorded."""
    sites = sites_of(case)
    asked = [rank for side in (found.made, found.without) for rank in spread(side)]
    return any(same(found.place, place) for rank in asked for place in sites.before(rank))


def _finding(case: Case, found: Disagreement) -> Finding:
    one = found.ways[0] if len(found.ways) == 1 else None
    when = words.in_step(found.step)
    made, without = case.name(found.made), case.name(found.without)
    witnesses = (
        Witness(Kind.PLACE, f"{made} called {found.name}{when}, and {without} did not"),
        Witness(Kind.SOURCE, _what_it_asks(found)),
    )
    named = found.found is not None and found.step.batch is not None
    certainty = case.weigh(witnesses) if named and one is not None else Certainty.LIKELY
    return Finding(
        "rank-local-decision",
        certainty,
        f"{conditions(found.ways)} {_came_out(found)}{when}: {made} called {found.name}, {without} did not.",
        fix=OUT_OF_CACHES if by_a_cache(found.ways) else advice(found.ways),
        culprits=case.culprits(found.odd, one.where if one else None),
        victims=case.victims(found.odd),
        step=found.step,
        evidence=(*((counted(case, found.found),) if found.found is not None else ()), *_in_other_groups(case, found)),
        witnesses=witnesses,
    )


def _came_out(found: Disagreement) -> str:
    """A condition on a counter comes out alike at the same count: not what it decides differs, but the count."""
    if found.ways and all(way.counts for way in found.ways):
        return f"asks for {what_differs(*found.ways)} that differs by rank"
    if by_a_cache(found.ways):
        return "answered some of the ranks by what it remembers"
    return "came out differently on the ranks"


def _in_other_groups(case: Case, found: Disagreement) -> tuple[str, ...]:
    if not found.alike:
        return ()
    did = "called it in their groups too" if found.alike_made else "did not call it in their groups either"
    return (f"{case.name(found.alike)} {did}",)


def _what_it_asks(found: Disagreement) -> str:
    where = words.either(words.place(way.where) for way in found.ways[: words.SHOWN])
    if all(way.asks == "alike" for way in found.ways):
        return (
            f"the condition at {where} asks for counters, settings or reduced values alone: one of them differs by rank"
        )
    return (
        f"by its own text the condition at {where} asks neither for the rank nor for a value that was reduced or"
        " broadcast before"
    )


def counts_on_from_elsewhere(case: Case) -> Finding | None:
    """A call of every so many turns came in other steps on some ranks from the first on: their counters began apart."""
    found = counts_apart(case) if case.in_trouble else None
    if found is None or not found.began_apart:
        return None
    odd = odd_of(found.made, found.without)
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"{condition(found.way)} asks for {what_differs(found.way)} that differs by rank"
        f"{words.in_step(found.found.step)}:"
        f" {case.name(found.made)} called {found.call}, {case.name(found.without)} did not.",
        fix=of_a_counter(found.way),
        culprits=case.culprits(odd, found.way.where),
        victims=case.victims(odd),
        step=found.found.step,
        evidence=(counted(case, found.found),),
        witnesses=(
            Witness(Kind.SOURCE, "the source shows no turn of the loop without the call of a step"),
            Witness(Kind.PLACE, f"no rank had made {found.call} by that call path before"),
        ),
    )


def decided_about_a_meeting(case: Case) -> Finding | None:
    """Ranks are past a call that returns when all have come to it: a value decided whether to call it."""
    return went_by(case, "rank-local-decision")
