"""A dump's file as plain values. A pickle can run code when it is read; this unpickler resolves no name at all."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hangwatch.errors import HangwatchError

from .early import is_early, modern

# Keys of which a dump has at least one; `entries` is missing where a rank has issued nothing.
_KEYS = frozenset({"entries", "pg_config", "pg_status", "nccl_comm_state"})


class DumpError(HangwatchError):
    """A file that is no dump of the flight recorder."""


def rank_of(path: Path) -> int | None:
    """The rank in a dump's file name: the number behind "rank", else the last one, as in `fr_3.json`."""
    numbers = re.findall(r"rank[-_]?(\d+)", path.name) or re.findall(r"\d+", path.name)
    return int(numbers[-1]) if numbers else None


def is_pickle(content: bytes) -> bool:
    """Whether a file is a pickle rather than text."""
    return content[:1] == b"\x80"


def documents(content: bytes) -> Iterator[tuple[int | None, dict[str, Any]]]:
    """The rank, where the file itself tells it, and the document of each dump in a file.

    A file holds one dump, or several by any name, as torch's own tools pass them on. Raises DumpError.
    """
    document = _loaded(content)
    if is_early(document):
        yield None, _modern(document)
        return
    if not isinstance(document, dict):
        raise DumpError("it is no dump of torch's flight recorder")
    if _KEYS & document.keys():
        yield _rank(document), document
        return
    inner = [part for part in document.values() if isinstance(part, dict) and _KEYS & part.keys()]
    if not inner:
        raise DumpError("it is no dump of torch's flight recorder: it has neither entries nor groups")
    for part in inner:
        yield _rank(part), part


def _modern(document: Any) -> dict[str, Any]:
    try:
        return modern(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DumpError(f"it has not the shape of a dump ({type(error).__name__}: {error})") from error


def _loaded(content: bytes) -> Any:
    try:
        return _PlainUnpickler(io.BytesIO(content)).load() if is_pickle(content) else json.loads(content)
    except DumpError:
        raise
    except Exception as error:  # a spoiled pickle raises whatever it likes
        raise DumpError(f"it is cut off or spoiled: {error}") from error


def _rank(document: Mapping[str, Any]) -> int | None:
    rank = document.get("rank")
    return int(rank) if isinstance(rank, int) or (isinstance(rank, str) and rank.isdecimal()) else None


class _PlainUnpickler(pickle.Unpickler):
    """Numbers, text, lists, tuples and dictionaries; nothing by name, so nothing that could be called."""

    def find_class(self, module: str, name: str) -> Any:
        raise DumpError(f"it is a pickle that wants {module}.{name}; a dump of torch's holds plain values only")

    def persistent_load(self, pid: Any) -> Any:
        raise DumpError("it is a pickle with references to elsewhere")
