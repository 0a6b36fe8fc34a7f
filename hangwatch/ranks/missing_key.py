"""What a store says when a key that a rank waited for was not set in time."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MISSING = re.compile(r"wait timeout after (\d+) ?ms, keys: (.+)", re.IGNORECASE)


@dataclass(frozen=True)
class MissingKey:
    """Keys as the program gave them, without the `/` that a prefix puts before each."""

    keys: tuple[str, ...]
    timeout_s: float


def missing_key(text: str) -> MissingKey | None:
    """The keys that the message names; None for another message."""
    found = _MISSING.search(text)
    if found is None:
        return None
    keys = tuple(key.strip().removeprefix("/") for key in found[2].split(","))
    return MissingKey(keys, int(found[1]) / 1000)
