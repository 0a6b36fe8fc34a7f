"""How sure two verdicts of one incident are, compared: by the hang and by the cause, which are two answers."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.model import Certainty, Verdict

ORDER = (None, Certainty.UNDETERMINED, Certainty.LIKELY, Certainty.PROVEN)


def least(one: Certainty | None, other: Certainty | None) -> Certainty | None:
    """The less sure of two answers to one question; None, "not said", is the least."""
    return min(one, other, key=ORDER.index)


def cause_is_surer(new: Verdict, known: Verdict) -> bool:
    """Whether the cause is known better than before."""
    return ORDER.index(new.certainty) > ORDER.index(known.certainty)


def hang_is_surer(new: Verdict, known: Verdict) -> bool:
    """Whether it is known better than before that the job is dead."""
    return ORDER.index(new.hang) > ORDER.index(known.hang)


def surer(new: Verdict, known: Verdict) -> bool:
    """Whether one of the two answers is surer than before."""
    return cause_is_surer(new, known) or hang_is_surer(new, known)


def sharpened(known: Verdict, new: Verdict) -> Verdict:
    """The new verdict where it is `surer`; neither answer becomes less sure by it.

    A job that is proven dead stays so until it moves; and the first look, which had more of the job alive, may have
    seen the cause better than the look that completes the proof.
    """
    if cause_is_surer(known, new):
        return replace(known, hang=new.hang, argument=new.argument)
    if new.hang is not None and hang_is_surer(known, new):
        return replace(new, hang=known.hang, argument=known.argument)
    return new
