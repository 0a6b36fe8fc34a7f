"""What the user's source says of a stack: whether a line stands in a loop, in an except block, in a signal handler."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from hangwatch.records import ThreadStack
from hangwatch.source import annotated

LARGEST_SOURCE = 2 << 20


def with_source(stacks: Sequence[ThreadStack], pid: int, proc: Path) -> tuple[ThreadStack, ...]:
    """The stacks of a process, with what the source of the user's own frames says of them, where it can be read."""
    root = proc / str(pid) / "root"  # a rank may live in another mount namespace than its watchdog
    return tuple(annotated(stack, lambda file: _source(file) or _source(f"{root}{file}")) for stack in stacks)


def _source(file: str) -> str | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_SOURCE:
        return None
    return _text(file, found.st_mtime_ns)


@lru_cache(maxsize=64)  # ranks share their files
def _text(file: str, changed_at: int) -> str | None:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
