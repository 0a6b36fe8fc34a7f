"""What a user may have meant by a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "did you mean a or b? ", to be put before what else there is to say; "" where nothing is near."""
    near = get_close_matches(word, sorted(known), MOST)
    return f"did you mean {' or '.join(near)}? " if near else ""
