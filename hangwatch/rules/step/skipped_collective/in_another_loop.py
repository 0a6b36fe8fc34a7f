"""Calls left out in the loop over another loader, such as a validation's, by ranks that are past it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.calls.runs import name_apart
from hangwatch.facts.calls.skip_paths import evidence_of, past_lines, skip_path, the_only
from hangwatch.facts.case import Case
from hangwatch.facts.loops.other_loops import skipped_in_other_loop
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def left_out_in_another_loop(case: Case) -> Finding | None:
    """Ranks drew as many batches as the others, and came out of the loop with fewer calls."""
    found = skipped_in_other_loop(case)
    if found is None or not case.in_trouble:
        return None
    run, where = found.run, found.drawn[found.run.ranks[0]].where
    batches = words.plural(found.drawn[run.ranks[0]].drawn, "batch")
    ways = past_lines(case, path(run.repeated.frames))
    ranks, others, everyone = (case.name(each) for each in (run.ranks, run.others, (*run.ranks, *run.others)))
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{words.capital(ranks)} made fewer calls than {others} in the loop over another loader{words.at(where)}"
        f"{skip_path(ways)}, and went on to {name_apart(run.reached, run.repeated)}; {others} still called"
        f" {name_apart(run.repeated, run.reached)}.",
        culprits=case.culprits(run.ranks, the_only(ways)),
        victims=case.victims(run.ranks),
        step=case.step_of(run.ranks),
        evidence=evidence_of(ways),
        witnesses=(Witness(Kind.FACT, f"{everyone} drew {batches} there, all that it has"),),
        status=case.failed_status,
    )
