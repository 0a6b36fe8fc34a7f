"""Ranks that ended the loop over another loader, such as a validation's, before the others."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.runs import name_apart, numbers_apart, place_apart
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import runs_below_a_package
from hangwatch.facts.loops.other_loops import other_loop_ended
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding

FIX = "give every rank the same number of batches in that loop: the same limit, and a sampler that pads or drops"


def ended_the_loop(case: Case, cause: str) -> Finding | None:
    """Ranks went on from a run of equal calls with fewer batches than the others, as `cause` explains it; else None."""
    found = other_loop_ended(case)
    if found is None or not case.in_trouble:
        return None
    run = found.run
    mine, theirs = found.drawn[run.ranks[0]], found.drawn[run.others[0]]
    counted = runs_below_a_package(case, run.ranks) or found.exhausted
    if cause != ("uneven-steps" if counted else "early-exit"):
        return None
    of_all = f"{mine.drawn} of {words.plural(mine.length, 'batch')}" if mine.length else str(mine.drawn)
    told = f"{case.name(run.ranks)} drew {of_all} there, and {case.name(run.others)} {theirs.drawn} so far"
    return Finding(
        cause,
        Certainty.LIKELY,
        f"{case.name(run.ranks, capital=True)} ended the loop over another loader{words.at(mine.where)} after"
        f" {words.plural(mine.drawn, 'batch')}, and went on to {name_apart(run.reached, run.repeated)};"
        f" {case.name(run.others)} drew {theirs.drawn} so far, and called {name_apart(run.repeated, run.reached)}"
        " again.",
        fix=FIX,
        culprits=case.culprits(run.ranks, place_apart(run.reached, run.repeated)),
        step=case.furthest_step(run.ranks),
        evidence=(numbers_apart(case, run),),
        witnesses=(Witness(Kind.FACT, told),),
        status=case.failed_status,
    )
