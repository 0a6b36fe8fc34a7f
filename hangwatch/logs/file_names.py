"""Ranks of files by their names' only number, where the lines of other files of such names say that it is the rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from .model import Logs, Raised

_NUMBER = re.compile(r"\d+")
_ENOUGH = 2  # files whose lines say so


def placed(logs: Logs) -> Logs:
    """The logs with the crashes and exceptions in files whose rank is told so."""
    found = {rank: raised for rank, raised in _of_files(logs) if rank not in logs.raised}
    if not found:
        return logs
    nameless = {each: None for each in logs.nameless if each not in found.values()}
    return replace(logs, raised={**logs.raised, **found}, ranks=logs.ranks | found.keys(), nameless=nameless)


def _of_files(logs: Logs) -> Iterator[tuple[int, Raised]]:
    for path, raised in logs.nameless_in.items():
        number = _number(path)
        if number is not None and not logs.named_in.get(path) and _is_rank(path, logs):
            yield number, raised


def _number(path: Path) -> int | None:
    numbers = _NUMBER.findall(path.name)
    return int(numbers[0]) if len(numbers) == 1 else None


def _is_rank(path: Path, logs: Logs) -> bool:
    """Other files of the same folder and kind of name tell of the one rank each that their name's number says."""
    pattern = _NUMBER.sub("#", path.name)
    alike = [
        (_number(other), ranks)
        for other, ranks in logs.named_in.items()
        if ranks and other.parent == path.parent and _NUMBER.sub("#", other.name) == pattern
    ]
    return len(alike) >= _ENOUGH and all(ranks == {number} for number, ranks in alike)
