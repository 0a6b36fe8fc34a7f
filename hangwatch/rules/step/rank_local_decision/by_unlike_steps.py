"""Calls that the ranks make in unlike steps: those that are through with theirs end while the others still call."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import passed_at, ways_past
from hangwatch.facts.case import Case
from hangwatch.facts.processes.left_until_the_end import in_unlike_steps
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.rank_local_decision.advice import advice

_FIX = "make that call after a count of steps that is the same on all ranks, and as often on each of them"


def ended_in_unlike_steps(case: Case) -> Finding | None:
    """No rank is to blame: each made the call when something of its own said so."""
    found = in_unlike_steps(case)
    if found is None:
        return None
    ways = tuple(way for way in ways_past(case, found.place, found.times) if way.asks == "value")
    name, number = sites_of(case).named(found.caller, found.place), found.call.seq
    ended, failed = case.name(found.ended, capital=True), case.name(found.failed)
    least, most = min(found.steps.values()), max(found.steps.values())
    each = [f"rank {rank} in step {step}" for rank, step in sorted(found.steps.items())[: words.SHOWN]]
    at = f", decided at {words.place(ways[0].where)} (`{ways[0].text}`)" if len(ways) == 1 else ""
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"The ranks make {name} after unlike numbers of steps{at}: number {number - 1} came in steps {least:,} to"
        f" {most:,} of theirs. {ended} had made all {words.verb(len(found.ended), 'its', 'their')} steps, and ended"
        f" without number {number}, in which {failed} failed.",
        fix=f"{_FIX}; or {advice(ways)}" if advice(ways) else _FIX,
        victims=found.failed,
        step=case.furthest_step(found.failed),
        evidence=(
            f"number {number - 1} of group {found.call.group} was made by {words.listed(each)}",
            *((passed_at(ways, "that call"),) if ways else ()),
        ),
        status=Status.FAILED,
    )
