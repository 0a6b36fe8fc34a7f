"""The catalogue's words: what each cause is called, what it is, and how it is mended."""

from __future__ import annotations

from .cause import DOCS, Cause
from .data import DATA
from .device import DEVICE
from .exit import EXIT
from .health import HEALTH
from .start import START
from .step import STEP
from .undetermined import UNDETERMINED

__all__ = ["BY_ID", "CATALOGUE", "DOCS", "Cause", "cause"]

CATALOGUE: tuple[Cause, ...] = (*START, *STEP, *DATA, *DEVICE, *EXIT, *UNDETERMINED, *HEALTH)
BY_ID = {cause.id: cause for cause in CATALOGUE}


def cause(identifier: str) -> Cause:
    """The catalogue's entry. Raises KeyError for an id that is not in it."""
    return BY_ID[identifier]
