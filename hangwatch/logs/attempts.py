"""The folders that torchrun makes for the output of its processes, RUN/attempt_0/3: their numbers are local ranks.

Of a job on one node a local rank is the rank. Of several nodes, whose folders lie side by side, it is one only behind
the ranks of the nodes before it: lines that begin with a rank tell where a node begins, or the numbers of the nodes do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

DEEPEST = 4  # folders above that of an attempt: NODE/LOGS/RUN/attempt_0
_ATTEMPT = re.compile(r"attempt_(\d+)")
_OWN = re.compile(rb"^\[rank(\d+)\]:", re.MULTILINE)
_READ = 1 << 16  # bytes of a file in which a line of a rank's own is looked for
_NODE = re.compile(r"(?:node|host|worker|machine|server|gpu|pod|nid)\D{0,2}\d+\D*$", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+)\D*$")


def first_ranks(roots: Iterable[Path]) -> dict[Path, int | None]:
    """The folder of each node's last attempt, with the rank of its local rank 0; None where that is not known."""
    attempts = _last_attempts(roots)
    if len(attempts) < 2:
        return {folder: _by_labels(folder) or 0 for folder in attempts}
    said = {folder: _by_labels(folder) for folder in attempts}
    if None not in said.values():
        return said
    numbered = _by_names(attempts)
    agree = all(first in (None, numbered.get(folder)) for folder, first in said.items())
    return dict(numbered) if numbered and agree else said


def _last_attempts(roots: Iterable[Path]) -> list[Path]:
    """One folder for each run of torchrun, in the order of their names."""
    found: dict[Path, list[Path]] = {}
    for root in roots:
        around = root if root.is_dir() else root.parent.parent
        patterns = ("*/" * depth + "attempt_*" for depth in range(DEEPEST + 1))
        inside = [path for pattern in patterns for path in around.glob(pattern)]
        for path in (around, *inside):
            if _ATTEMPT.fullmatch(path.name) and path.is_dir():
                found.setdefault(path.parent, []).append(path)
    return sorted(max(paths, key=lambda path: int(path.name.rpartition("_")[2])) for paths in found.values())


def _by_labels(attempt: Path) -> int | None:
    """By the rank that stands before lines of its processes, less the numbers of their folders."""
    told = set()
    for folder in _of_processes(attempt):
        for file in sorted(path for path in folder.iterdir() if path.is_file()):
            with file.open("rb") as read:
                ranks = {int(rank) for rank in _OWN.findall(read.read(_READ))}
            told |= {rank - int(folder.name) for rank in ranks}
    return told.pop() if len(told) == 1 else None


def _by_names(attempts: list[Path]) -> dict[Path, int]:
    """By the numbers of the nodes in the names of the first folders that differ; {} where these do not count them."""
    depth = next(
        (n for n, names in enumerate(zip(*(path.parts for path in attempts), strict=False)) if len(set(names)) > 1), 0
    )
    numbers = {path: _NUMBER.search(path.parts[depth]) for path in attempts}
    sizes = {len(_of_processes(path)) for path in attempts}
    if None in numbers.values() or len(sizes) != 1 or not all(_NODE.search(path.parts[depth]) for path in attempts):
        return {}
    order = sorted(attempts, key=lambda path: _number(path.parts[depth]))
    counted = [_number(path.parts[depth]) for path in order]
    if counted not in (list(range(len(order))), list(range(1, len(order) + 1))):
        return {}
    (size,) = sizes
    return {path: n * size for n, path in enumerate(order)}


def _number(name: str) -> int:
    found = _NUMBER.search(name)
    return int(found[1]) if found is not None else -1


def _of_processes(attempt: Path) -> list[Path]:
    return sorted(path for path in attempt.iterdir() if path.is_dir() and path.name.isdecimal())
