"""A call that a rank made once more than most, because a loop of its own tries again after an error."""

from __future__ import annotations

from hangwatch import words
from hangwatch.catalogue.step import TRY_AGAIN_TOGETHER
from hangwatch.facts.case import Case
from hangwatch.facts.loops.turns import drew_alike, fewer_turns
from hangwatch.facts.loops.ways_out import tries_again_at
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding
from hangwatch.rules.turns import standing


def called_again(case: Case) -> Finding | None:
    """Ranks are past a loop that has another turn only after an error, and others are in it still."""
    short = fewer_turns(case)
    caught = tries_again_at(case, short) if short is not None and not drew_alike(case, short) else None
    if short is None or caught is None:
        return None
    ranks, text, view = short.inside, case.text_of(caught), case.ranks[short.inside[0]]
    clause = f"{words.place(caught)}{f' (`{text}`)' if text else ''}"
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"{case.say(ranks, 'has', 'have', capital=True)} called {view.now.called}{words.at(view.where)} more often than"
        f" {case.name(short.left)}, probably once more after an error that was caught at {clause}.",
        fix=TRY_AGAIN_TOGETHER,
        culprits=case.culprits(ranks, caught),
        victims=case.victims(ranks),
        step=case.step_of(ranks),
        evidence=(
            *standing(case, short),
            f"by the source, that loop has another turn only after an error, at {clause}",
        ),
        status=case.failed_status,
    )
