"""A value that differs by rank decided about a collective call: some ranks made it, others did not."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.facts.decisions import Disagreement, disagreement, of_every_step
from hangwatch.facts.parting import Left, counted
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass, Certainty, Status
from hangwatch.rules.finding import Finding


def rank_local_decision(case: Case) -> Finding | None:
    """Ranks diverged at a condition that depends neither on the rank nor on what is the same on all of them."""
    found = disagreement(case)
    if found is None or not (case.blocked or case.any_rank_failed) or not _decides(found):
        return None
    extra = found.found is not None and found.found.how is Left.EXTRA
    if of_every_step(case, found) or (sites_of(case).in_backward(found.made[0], found.place) and not extra):
        return None  # what belongs to every step was skipped, whatever the reason was
    return _finding(case, found)


def decided_and_ended(case: Case) -> Finding | None:
    """The same, where the backend brought the job down because of it."""
    found = rank_local_decision(case) if case.any_rank_failed else None
    return replace(found, certainty=Certainty.LIKELY, status=Status.FAILED) if found is not None else None


def _decides(found: Disagreement) -> bool:
    """All ways past the call are conditions on a value, and guard that call and not the rest of the loop's turn."""
    own = all(way.asks == "value" and not way.of_turn for way in found.ways)
    return bool(found.ways) and own and not found.in_module


def _finding(case: Case, found: Disagreement) -> Finding:
    one = found.ways[0] if len(found.ways) == 1 else None
    condition = words.either(_way(way) for way in found.ways[: words.SHOWN])
    when = f" in {words.step(found.step)}" if words.step(found.step) else ""
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
        f"{condition} came out differently on the ranks{when}: {made} called {found.name}, {without} did not.",
        culprits=tuple(
            case.ranks[rank].culprit(one.where if one else None) for rank in found.odd if rank in case.ranks
        ),
        victims=case.victims(found.odd) if len(found.odd) < len(case.ranks) else (),
        step=found.step,
        evidence=(counted(case, found.found),) if found.found is not None else (),
        witnesses=witnesses,
        awaited=found.odd,
    )


def _what_it_asks(found: Disagreement) -> str:
    where = words.either(words.place(way.where) for way in found.ways[: words.SHOWN])
    return f"the condition at {where} asks neither for the rank nor for a value that was reduced or broadcast before"


def _way(way: Bypass) -> str:
    return f"`{way.text}` ({words.place(way.where)})"
