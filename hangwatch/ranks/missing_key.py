"""What a store says when a key that a rank waited for was not set in time."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OF_A_RANK = re.compile(r"//cpu//\d+/(\d+)$")  # where gloo puts the address of a rank, below the name of its group
_MISSING = re.compile(r"wait timeout after (\d+) ?ms, keys: (.+)", re.IGNORECASE)


@dataclass(frozen=True)
class MissingKey:
    """Keys as the program gave them, without the `/` that a prefix puts before each."""

    keys: tuple[str, ...]
    timeout_s: float

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks whose addresses these are, in their group; () for other keys."""
        return tuple(int(found[1]) for key in self.keys if (found := _OF_A_RANK.search(key)) is not None)


def missing_key(text: str) -> MissingKey | None:
    """The keys that the message names; None for another message."""
    found = _MISSING.search(text)
    if found is None:
        return None
    keys = tuple(key.strip().removeprefix("/") for key in found[2].split(","))
    return MissingKey(keys, int(found[1]) / 1000)
