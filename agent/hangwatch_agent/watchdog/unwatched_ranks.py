"""Ranks that train without a probe: processes with RANK and torch that never made a board, and why.

`hangwatch run` reaches a Python below it by PYTHONPATH only. A job that is not watched must not look like one that is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hangwatch import words
from hangwatch.model import Launched
from hangwatch_agent.rank.bootstrap import bootstrap_folder
from hangwatch_agent.shared import procfs

ADVICE = "put `import hangwatch; hangwatch.attach()` into the script"
IGNORING = {"I": "-I", "E": "-E", "S": "-S"}  # Python's options by which PYTHONPATH or sitecustomize is passed over


@dataclass(frozen=True)
class Unwatched:
    """One living rank without a board, and the reason as far as its process shows it."""

    rank: int
    pid: int
    why: str


def unwatched(launched: Iterable[Launched], now: float, patience: float, proc: Path = procfs.PROC) -> list[Unwatched]:
    """Those ranks that have had torch for longer than `patience` seconds and no board, by rank."""
    quiet = (each for each in launched if not each.board and each.ended_at is None)
    late = (each for each in quiet if now - each.started_at > patience)
    reasons = ((each, why(each.pid, proc)) for each in late if has_torch(each.pid, proc))
    return [Unwatched(each.rank, each.pid, reason) for each, reason in reasons if reason]


def sentence(found: Iterable[Unwatched]) -> str:
    """One line for the terminal, with what to do."""
    found = list(found)
    reasons = "; ".join(sorted({each.why for each in found}))
    return (
        f"hangwatch: {words.ranks([each.rank for each in found])} {'is' if len(found) == 1 else 'are'} not watched: "
        f"{reasons}. Change that, or {ADVICE}"
    )


def has_torch(pid: int, proc: Path = procfs.PROC) -> bool:
    """Whether a process has loaded torch's libraries."""
    try:
        return b"libtorch" in (proc / str(pid) / "maps").read_bytes()
    except OSError:
        return False


def why(pid: int, proc: Path = procfs.PROC) -> str:
    """What keeps `hangwatch run` out of a process; "" where nothing does: it may still be importing torch."""
    for option in interpreter_options(procfs.command_line(pid, proc)):
        if option in IGNORING:
            return f"Python was started with {IGNORING[option]}, which keeps hangwatch out"
    try:
        environment = procfs.environment(pid, proc)
    except OSError:
        return ""
    if environment.get("HANGWATCH_ENABLED") == "0":
        return ""  # asked for
    if reason := why_not_found(environment.get("PYTHONPATH", "").split(os.pathsep), proc / str(pid) / "root"):
        return reason
    version = python_version(pid, proc)
    return (
        f"hangwatch needs Python 3.11, and this is {version[0]}.{version[1]}" if version and version < (3, 11) else ""
    )


def why_not_found(path: Sequence[str], root: Path) -> str:
    """Why a Python with these folders on PYTHONPATH does not find hangwatch's sitecustomize; `root`: as it sees files.

    Relative folders, whose place depends on the process, are passed over.
    """
    ours = str(bootstrap_folder())
    if ours not in path:
        return "PYTHONPATH was replaced in the launch command; append to it instead"
    files = [f"{folder}/sitecustomize.py" for folder in path[: path.index(ours) + 1] if folder.startswith("/")]
    try:
        first = next((file for file in files if (root / file.lstrip("/")).is_file()), "")
    except OSError:
        return ""  # its files may not be looked at
    if not first:
        return f"its container has no {ours}; mount what hangwatch is installed in at the same place"
    if first.startswith(f"{ours}/"):
        return ""
    return f"{first} is found before hangwatch's own, which would run it too; append its folder to PYTHONPATH"


def python_version(pid: int, proc: Path = procfs.PROC) -> tuple[int, int] | None:
    """The version of a process's interpreter, by the name of its executable or library."""
    try:
        found = re.search(r"python(\d)\.(\d+)", (proc / str(pid) / "exe").readlink().name)
    except OSError:
        return None
    return (int(found[1]), int(found[2])) if found else None


def interpreter_options(command: Iterable[str]) -> str:
    """The single letters of options before the script: "IB" for `python -I -B train.py`."""
    found = ""
    for word in list(command)[1:]:
        if not word.startswith("-") or word.startswith("--") or word in ("-", "-c", "-m"):
            break
        found += word[1:] if word[1:2] not in ("W", "X") else ""
    return found
