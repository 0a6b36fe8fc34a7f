"""A step that one rank alone tried again after an error: all its later calls come one step late."""

from __future__ import annotations

from hangwatch import words
from hangwatch.catalogue.step import TRY_AGAIN_TOGETHER
from hangwatch.facts.calls.skip_paths import conditions
from hangwatch.facts.case import Case
from hangwatch.facts.differences.parting import counted, parting
from hangwatch.facts.differences.tried_again import tried_again_before
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def tried_its_step_again(case: Case) -> Finding | None:
    """No proof: that the error came behind a call of the step, and not before the first one, is not known."""
    found = tried_again_before(case) if case.in_trouble else None
    if found is None:
        return None
    ranks = tuple(sorted(found.errors))
    error = found.errors[ranks[0]]
    caught, differs = f"{words.error(error)}{words.at(user_frame(error.frames))}", parting(case)
    who = case.name(ranks)
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"{words.capital(who)} caught {caught} in step {error.step} and probably made that step once more, by"
        f" {conditions(found.clauses)}; since then {words.verb(len(ranks), 'its', 'their')} calls come a step later"
        " than those of the others.",
        fix=TRY_AGAIN_TOGETHER,
        culprits=case.culprits(ranks, found.clauses[0].where),
        victims=case.victims(ranks),
        step=found.divergence.name,
        evidence=(
            f"no other rank caught {error.type}{words.at(user_frame(error.frames))}",
            f"{who} {words.verb(len(ranks), 'is', 'are')} in a later step than all others",
            *((counted(case, differs),) if differs is not None else ()),
        ),
    )
