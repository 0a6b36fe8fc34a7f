"""The diagnosis held against the truth: what it said of one simulated job, and how right that was."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hangwatch.judge import diagnose
from hangwatch.model import Certainty, Judgement, Status

from .claims import Checked, check
from .program import DUAL
from .world import Played


class Outcome(StrEnum):
    """How right a verdict is, the best first. The last two are never to happen."""

    RIGHT = "right"  # cause and culprits
    CAUSE = "cause only"  # the cause is right, and no rank is named
    CULPRIT = "culprit only"  # the guilty are named, for another cause
    UNDETERMINED = "undetermined"  # no rank is named, nothing is claimed
    NO_CULPRIT = "wrong cause"  # another cause, and no rank is named
    INNOCENT = "innocent, likely"  # a rank that has done nothing wrong is named as likely
    PROVEN_INNOCENT = "innocent, proven"


@dataclass(frozen=True)
class Score:
    """What was said of one job: never may `false_proof` be true, or the outcome be PROVEN_INNOCENT."""

    seed: int
    kind: str
    cause: str  # the best cause of the first fault; "" where there is no fault
    backend: str
    size: int
    outcome: Outcome
    false_proof: bool
    said: str
    alive: bool = False  # the job could go on
    checked: int = 0  # sentences of the evidence that were held against what the ranks had done
    false_claims: tuple[str, ...] = ()  # those of them that are not true

    @property
    def unforgivable(self) -> bool:
        return self.false_proof or self.outcome is Outcome.PROVEN_INNOCENT


def score(played: Played) -> Score:
    """Judges the evidence of a simulated job, and compares."""
    judgement = diagnose(played.snapshot)
    truth, verdict = played.truth, judgement.verdict
    checked = check(verdict, played.lives) if played.plan.backend != DUAL else Checked()  # no number tells its calls
    return Score(
        played.seed,
        truth.kind,
        truth.causes[0] if truth.causes else "",
        played.plan.backend,
        played.plan.size,
        outcome(played, judgement),
        verdict.hang is Certainty.PROVEN and truth.alive,
        verdict.cause,
        truth.alive,
        checked.count,
        checked.false,
    )


def outcome(played: Played, judgement: Judgement) -> Outcome:
    truth, verdict = played.truth, judgement.verdict
    blamed = {*verdict.blamed}
    if blamed - truth.guilty:
        return Outcome.PROVEN_INNOCENT if verdict.certainty is Certainty.PROVEN else Outcome.INNOCENT
    if verdict.cause == "undetermined":
        healthy = not truth.fired and judgement.status in (Status.WAITING, Status.RECOVERED)
        return Outcome.RIGHT if healthy else Outcome.UNDETERMINED
    if verdict.cause in truth.causes:
        return Outcome.RIGHT if blamed or not truth.guilty else Outcome.CAUSE
    return Outcome.CULPRIT if blamed else Outcome.NO_CULPRIT
