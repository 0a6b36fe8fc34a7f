"""A rank that went through many turns without a call, and had ended when the others failed in it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only, ways_past
from hangwatch.facts.case import Case
from hangwatch.facts.processes.left_until_the_end import left_until_the_end
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Frame, Status, StepName
from hangwatch.rules.finding import Finding


def skipped_until_its_end(case: Case) -> Finding | None:
    """It had made all its steps, and not the call: its end is no early one."""
    found = left_until_the_end(case)
    if found is None:
        return None
    ways = ways_past(case, found.place, found.times)
    who, others, first = case.name(found.ranks), case.name(found.failed), words.ranks(found.ranks[:1])
    its = words.verb(len(found.ranks), "its", "their")
    name = sites_of(case).named(found.caller, found.place)
    line = Frame(*found.place.lines[0], "")
    call = f"number {found.call.seq} of group {found.call.group}"
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{words.capital(who)} skipped {name} from step {found.since + 1} on{skip_path(ways)}, and had ended {its}"
        f" program when {others} came to {call}, or failed in it.",
        fix="let all ranks decide alike whether to make that call: by a count of steps, or by a value that is reduced"
        " first (all_reduce of the condition)",
        culprits=case.culprits(found.ranks, the_only(ways) or line),
        victims=found.failed,
        step=StepName(None, None, found.since + 1),
        evidence=(
            f"the last call of {first} from there was in its step {found.since}, and it ended in step {found.end}",
            f"{words.ranks([found.caller])} made {call}, and {who} never did",
            *evidence_of(ways),
        ),
        witnesses=(
            Witness(
                Kind.HABIT, f"before, {first} had never made more than {words.plural(found.usual, 'step')} without it"
            ),
        ),
        status=Status.FAILED,
    )
