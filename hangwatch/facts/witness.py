"""The second of the two answers: how certain is the cause? Witnesses speak for it or against it.

A cause is `proven` where a fact of the system settles it, or where witnesses of two independent kinds agree and none
speaks against it; `likely` where more kinds speak for it than against; else `undetermined`, and no rank is blamed.
That the job is dead is no witness: every cause explains a dead job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hangwatch.model import Certainty


class Kind(StrEnum):
    """The source of what a witness says."""

    FACT = "fact"  # the system, or torch's own object, says so: a dead process, an exhausted loader
    MAJORITY = "majority"  # what most ranks did in the same iteration
    HABIT = "habit"  # what this rank did in its earlier iterations
    PLACE = "place"  # where ranks have been before, by their call sites
    SOURCE = "source"  # what the user's source shows


@dataclass(frozen=True)
class Witness:
    """What one kind of evidence says of a cause, as a sentence."""

    kind: Kind
    says: str
    agrees: bool = True

    def __str__(self) -> str:
        return self.says if self.agrees else f"against it: {self.says}"


def weigh(witnesses: Iterable[Witness]) -> Certainty:
    """The certainty of a cause, given these witnesses."""
    heard = list(witnesses)
    agree = {witness.kind for witness in heard if witness.agrees}
    against = {witness.kind for witness in heard if not witness.agrees}
    if not against and (Kind.FACT in agree or len(agree) > 1):
        return Certainty.PROVEN
    return Certainty.LIKELY if len(agree) > len(against) else Certainty.UNDETERMINED


def sentences(witnesses: Iterable[Witness]) -> tuple[str, ...]:
    """What the witnesses say, for the evidence of a verdict: those that agree first."""
    heard = sorted(witnesses, key=lambda witness: not witness.agrees)
    return tuple(str(witness) for witness in heard if witness.says)
