"""A call in another group than all earlier ones of its line: its members wait there, or pair it with a later one."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.facts.differences.astray import astray
from hangwatch.facts.differences.parting import counted
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Frame
from hangwatch.rules.finding import Finding


def called_in_another_group(case: Case) -> Finding | None:
    """Ranks took another group at a line than in every earlier step."""
    found = astray(case)
    if found is None or not case.in_trouble:
        return None
    ranks, group = case.name(found.ranks), found.found.divergence.group
    where = Frame(*found.place.lines[0], "")
    call = sites_of(case).named(found.ranks[0], found.place)
    its = words.verb(len(found.ranks), "its", "their")
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"{words.capital(ranks)} called {call} in group {group} {found.found.when}, where {its} earlier calls were in"
        f" group {found.usual}: the calls of both groups are mispaired since then.",
        fix=f"look at which group {ranks} {words.verb(len(found.ranks), 'takes', 'take')} at {words.place(where)}",
        culprits=case.culprits(found.ranks, where),
        victims=case.victims(found.ranks),
        step=found.found.step,
        evidence=(counted(case, found.found),),
        witnesses=(
            Witness(Kind.HABIT, f"all earlier calls of {ranks} on record from there were in group {found.usual}"),
        ),
        status=case.failed_status,
    )
