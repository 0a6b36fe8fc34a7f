"""The places in the user's code where recorded calls were issued, with the ways past them that their source shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hangwatch.frames import origin
from hangwatch.records import CallSite, Frame, RankEvidence
from hangwatch.source import ways_past_call
from hangwatch_agent.capture.redact import redact_text
from hangwatch_agent.capture.sources import Sources

MOST = 64  # call sites of a node; a training loop has a handful
MOST_WAYS = 16  # past one of them
LONGEST = 120  # characters of what is said of a way


def call_sites(ranks: Iterable[RankEvidence], sources: Sources, proc: Path) -> tuple[CallSite, ...]:
    """The call sites of all recorded collectives that a turn of the loop can pass by. Ranks share them."""
    places: dict[tuple[Frame, ...], Path | None] = {}
    for rank in ranks:
        lives = rank.process is not None and rank.process.state != "X"
        root = proc / str(rank.pid) / "root" if lives else None
        for call in rank.collectives.recent:
            own = tuple(frame for frame in call.frames if not frame.native and origin(frame.file) == "user")
            if own and len(places) < MOST:
                places.setdefault(own, root)
    return tuple(site for own, root in places.items() if (site := _site(own, root, sources)).bypasses)


def _site(frames: tuple[Frame, ...], root: Path | None, sources: Sources) -> CallSite:
    def text(file: str) -> str | None:
        found = sources.of(file, root) if file.startswith("/") and file.endswith(".py") else None
        return found.text if found is not None else None

    ways = ways_past_call(frames, text)
    return CallSite(frames, tuple(replace(way, text=_clipped(way.text)) for way in ways[:MOST_WAYS]))


def _clipped(text: str) -> str:
    shown = " ".join(redact_text(text).split())
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 4]} ..."
