"""The table of the gallery: which script shows which cause, how to start it, what should be said of it."""

from __future__ import annotations

from .calls import CALLS
from .case import Case
from .data import DATA
from .exit import EXIT
from .health import HEALTH
from .nccl import NCCL
from .start import START
from .step import STEP

__all__ = ["CASES", "Case"]

CASES: tuple[Case, ...] = (*START, *STEP, *CALLS, *DATA, *EXIT, *HEALTH, *NCCL)
