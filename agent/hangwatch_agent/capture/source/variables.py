"""Which variables of the environment the user's program asks for: those that its source names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from hangwatch.model import RankEvidence
from hangwatch_agent.capture.source.files import Sources
from hangwatch_agent.capture.source.programs import texts

MOST = 64  # variables of a rank


def named(
    ranks: Iterable[RankEvidence], known: Mapping[int, Mapping[str, str]], sources: Sources, proc: Path
) -> dict[int, dict[str, str]]:
    """Of the digests `known` of each rank those of variables whose names stand as a text in the user's files.

    A program that asks for `f"{PREFIX}_{name}"` names none of them.
    """
    program = list(texts(ranks, sources, proc).values())
    names = {name for digests in known.values() for name in digests}
    asked = sorted(name for name in names if any(f'"{name}"' in text or f"'{name}'" in text for text in program))
    return {rank: {name: digests[name] for name in asked[:MOST] if name in digests} for rank, digests in known.items()}
