"""The phases at both ends of a rank's life."""

from __future__ import annotations

from hangwatch.model import Phase

STARTING = (Phase.START, Phase.INIT, Phase.GROUP)
EXITING = (Phase.MAIN_DONE, Phase.ATEXIT, Phase.FINALIZING)
LEAVING = (Phase.DESTROYED, *EXITING)  # training is over, be there more of the program or not
