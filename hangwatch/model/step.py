"""The name of a step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepName:
    """A step in the user's terms; parts that are not known are None."""

    epoch: int | None = None
    batch: int | None = None
    step: int | None = None
