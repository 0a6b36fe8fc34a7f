"""The agent's own thread in a rank: none of `threading`'s, so Python has no name for it."""

from __future__ import annotations

from hangwatch.model import Frame

TICKER = "hangwatch-ticker"
_FILE = "/hangwatch_agent/rank/ticker.py"


def name_of_own(frames: tuple[Frame, ...]) -> str:
    """The name of a thread that runs our ticker; "" for any other."""
    return TICKER if any(frame.file.endswith(_FILE) for frame in frames) else ""
