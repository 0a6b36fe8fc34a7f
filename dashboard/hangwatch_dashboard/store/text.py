"""Text and documents in the form in which they are stored."""

from __future__ import annotations

import json
import zlib
from typing import Any


def clean(text: str, limit: int = 500) -> str:
    """`text` as one printable line that every database and every log takes: hostile characters become "?"."""
    line = "".join(letter if letter.isprintable() else "?" for letter in text[:limit])
    return line if len(text) <= limit else line[: limit - 1] + "…"


def pack(document: Any) -> bytes:
    """Plain data (dictionaries, lists, scalars) as compressed JSON."""
    return zlib.compress(json.dumps(document, separators=(",", ":"), allow_nan=False).encode(), 1)


def unpack(packed: bytes) -> Any:
    """What `pack` took."""
    return json.loads(zlib.decompress(packed))


def unzipped(packed: bytes) -> bytes:
    """What a node sent, which is kept as it came: gzip where it was compressed, else zlib by us."""
    return zlib.decompress(packed, wbits=47)  # either, by its header
