"""What a rule finds: a verdict in the making."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hangwatch.facts.case import Case
from hangwatch.facts.witness import Witness
from hangwatch.model import Certainty, ChainEnd, Culprit, Stage, Status, StepName, Wait, ranks_of


@dataclass(frozen=True)
class Finding:
    """A rule's answer; what is left out is filled in from the catalogue and the case.

    `status` is only given where a fact settles it; otherwise it follows from proof, and from the patience of `awaited`
    (the culprits by default). `culprits` is empty where no rank is to blame.
    """

    cause: str
    certainty: Certainty
    summary: str
    fix: str = ""
    culprits: tuple[Culprit, ...] = ()
    victims: tuple[int, ...] | None = None
    step: StepName = field(default_factory=StepName)
    evidence: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    waits: tuple[Wait, ...] | None = None
    ends: tuple[ChainEnd, ...] | None = None
    status: Status | None = None
    stage: Stage | None = None
    awaited: tuple[int, ...] = ()
    dead: str = ""  # a fact of the system for which the ranks `held` can never go on, beyond what collectives show
    held: tuple[int, ...] = ()
    witnesses: tuple[Witness, ...] = ()  # those that were weighed for `certainty`; they end up in the evidence
    not_causes: tuple[tuple[str, str], ...] = ()  # (cause, why not), beyond what the catalogue's look-alikes give

    @property
    def blamed(self) -> tuple[int, ...]:
        """The ranks at fault, or whose processes are."""
        return ranks_of(self.culprits)

    @property
    def expected(self) -> tuple[int, ...]:
        """The ranks whose patience counts."""
        return self.awaited or (self.blamed if self.status is None else ())


Rule = Callable[[Case], Finding | None]
