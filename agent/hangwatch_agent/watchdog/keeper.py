"""Starts the watchdog again, from within the ranks that attached, where it has been killed."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from hangwatch.settings import Settings
from hangwatch_agent.board import directory
from hangwatch_agent.shared.saying import say
from hangwatch_agent.watchdog import start

EVERY_S = 5.0
MOST_STARTS = 3  # a watchdog that is killed again and again is not wanted, or does not fit into memory


class Keeper:
    """Starts the watchdog process of `folder` again where it was killed. `look` is for a rank's ticker.

    Whether it lives is shown by its lock file, which the kernel unlocks at its end: a few microseconds for each look.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        *,
        say: Callable[[str], None] = say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._settings, self._say, self._clock = folder, settings, say, clock
        self._starts = 0
        self._again_at = clock() + EVERY_S
        self._over = False

    def look(self) -> None:
        """Once every few seconds: start a watchdog where none is. Of all ranks one does."""
        if self._over or self._clock() < self._again_at:
            return
        self._again_at = self._clock() + EVERY_S
        if not self._folder.is_dir() or (self._folder / directory.WATCHDOG_DISMISSED).exists():
            self._over = True
            return
        try:
            started = start.ensure_watchdog(self._folder, self._settings)
        except (OSError, subprocess.SubprocessError) as error:
            self._give_up(f"it cannot be started again ({error})")
            return
        if not started:
            return
        self._starts += 1
        self._say(f"hangwatch: the watchdog had ended without a word (killed?); rank {_rank()} has started another one")
        if self._starts >= MOST_STARTS:
            self._over = True

    def _give_up(self, why: str) -> None:
        self._over = True
        self._say(f"hangwatch: the watchdog has gone: {why}; this rank is no longer watched")


def _rank() -> str:
    return os.environ.get("RANK", "?")
