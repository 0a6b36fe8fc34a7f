"""Ranks whose steps nothing names: no loader, no framework, and no tick of their own loop."""

from __future__ import annotations

from hangwatch.model import Progress
from hangwatch.ranks.view import RankView


def steps_end(view: RankView) -> bool:
    """Its optimizer steps end its steps, for nothing begins them: the one in progress may be none."""
    made = _counted(view)
    return made is not None and not made.forwards


def steps_are_forwards(view: RankView) -> bool:
    """Its forwards begin its steps."""
    made = _counted(view)
    return made is not None and made.forwards > 0


def _counted(view: RankView) -> Progress | None:
    """Its progress, where only its forwards and optimizer steps tell its steps apart."""
    made = view.reading.progress if view.reading is not None and view.step.batch is None else None
    return made if made is not None and made.optimizer_steps > 0 and not made.ticks else None
