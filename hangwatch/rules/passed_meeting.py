"""A call that waits for all workers, such as Ray Train's `report`, which some ranks went by."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.skip_paths import asked_for_the_rank, evidence_of, the_only
from hangwatch.facts.case import Case
from hangwatch.facts.data.meetings import PassedMeeting, passed_meeting
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.ranks.sides import odd_of
from hangwatch.rules.finding import Finding


def went_by(case: Case, cause: str) -> Finding | None:
    """Ranks are past the call in which others wait for all, in the way that `cause` explains; else None."""
    found = passed_meeting(case) if case.blocked else None
    if found is None or not _explains(cause, found):
        return None
    odd = found.waiting if cause == "rank-zero-only-collective" else odd_of(found.waiting, found.past)
    waiting, past = case.name(found.waiting), case.name(found.past)
    call = f"{found.call}{words.at(found.where)}"
    how = f", at {words.place(found.ways[0].where)} (`{found.ways[0].text}`)" if the_only(found.ways) else ""
    be = words.verb(len(found.past), "is", "are")
    return Finding(
        cause,
        Certainty.LIKELY,
        f"{words.capital(past)} went by {call}{how}, and {be} in {words.step(case.step_of(found.past))} already;"
        f" {case.wait_words(found.waiting)} there until all ranks have called it.",
        fix=f"call {found.call} on all ranks, or on none: reduce the value first that decides about it",
        culprits=case.culprits(odd, the_only(found.ways)),
        victims=case.victims(odd),
        step=case.step_of(found.waiting),
        evidence=evidence_of(found.ways),
        witnesses=(_witness(case, found, waiting),),
    )


def _witness(case: Case, found: PassedMeeting, waiting: str) -> Witness:
    if case.step_of(found.waiting).epoch is not None:
        return Witness(Kind.PLACE, f"{waiting} called {found.call} behind an epoch that was as long on all ranks")
    return Witness(Kind.SOURCE, asked_for_the_rank(next(way for way in found.ways if way.asks == "rank")))


def _explains(cause: str, found: PassedMeeting) -> bool:
    asks = {way.asks for way in found.ways}
    if "rank" in asks:
        return cause == "rank-zero-only-collective"
    return cause == ("rank-local-decision" if asks == {"value"} else "skipped-collective")
