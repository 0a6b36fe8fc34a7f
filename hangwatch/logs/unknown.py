"""What logs show of ranks that wait or have ended, where they do not show why."""

from __future__ import annotations

from typing import Any

from hangwatch.model import Certainty, Judgement, Stage, Status, Verdict


def unknown(status: Status, stage: Stage, summary: str, fix: str, **said: Any) -> Judgement:
    """A judgement without a cause. `said`: what else of a Verdict is known."""
    verdict = Verdict("undetermined", Certainty.UNDETERMINED, summary, fix=fix, **said)
    return Judgement(status, stage, verdict)
