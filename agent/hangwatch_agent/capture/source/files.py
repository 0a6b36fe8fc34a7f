"""The user's source files, read with care: regular files of sane size, and a file server that hangs is given up."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from hangwatch.model import LoopFacts, ThreadStack
from hangwatch.source.hints import annotated
from hangwatch_agent.capture.source.lines import one_line
from hangwatch_agent.shared.deadline import DeadlineError, within

LARGEST_SOURCE = 2 << 20
PATIENCE_S = 2.0  # for one file; after one that does not come, no further ones are tried


@dataclass(frozen=True)
class Source:
    """A file's text, and when it was last written (seconds since 1970)."""

    text: str
    changed_at: float


@dataclass
class Sources:
    """The files that one capture has read; ranks share them, and each is read once."""

    patience_s: float = PATIENCE_S
    stuck: bool = False
    _known: dict[str, Source | None] = field(default_factory=dict)

    def of(self, file: str, root: Path | None = None) -> Source | None:
        """The file, or the one of that name below `root`: a rank may live in another mount namespace."""
        return self._one(file) or (self._one(f"{root}{file}") if root is not None else None)

    def reader(self, root: Path | None) -> Callable[[str], str | None]:
        """What gives the text of a file of one process, or None."""

        def text(file: str) -> str | None:
            found = self.of(file, root)
            return found.text if found is not None else None

        return text

    def beside(self, file: str, root: Path | None = None) -> list[str]:
        """The Python files of the folder of `file`, by name; none where it cannot be read in time."""
        folder = str(Path(file).parent)
        for place in (folder, f"{root}{folder}" if root is not None else folder):
            if self.stuck:
                break
            try:
                names = within(self.patience_s, partial(_python_in, place), "hangwatch-source")
            except DeadlineError:
                self.stuck = True
                break
            if names:
                return [f"{folder}/{name}" for name in names]
        return []

    def _one(self, file: str) -> Source | None:
        if file not in self._known and not self.stuck:
            self._known[file] = self._awaited(file)
        return self._known.get(file)

    def _awaited(self, file: str) -> Source | None:
        """Reads in a thread of its own: a system call to a dead file server may never return."""
        try:
            return within(self.patience_s, lambda: read(file), "hangwatch-source")
        except DeadlineError:
            self.stuck = True
            return None


def read(file: str) -> Source | None:
    """A file, or None for whatever is no readable regular file of sane size."""
    try:
        path = Path(file)
        if not _sane(path.stat()):
            return None
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # it may have become a FIFO since
        with os.fdopen(descriptor, encoding="utf-8-sig", errors="replace") as opened:
            found = os.fstat(descriptor)
            return Source(opened.read(LARGEST_SOURCE), found.st_mtime) if _sane(found) else None
    except (OSError, ValueError):
        return None


def _python_in(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    except OSError:
        return []


def _sane(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST_SOURCE


def with_source(stacks: Sequence[ThreadStack], sources: Sources, root: Path | None) -> tuple[ThreadStack, ...]:
    """The stacks of a process, with what the source of the user's own frames says of them, where it can be read."""
    text = sources.reader(root)
    told = (annotated(stack, text) for stack in stacks)
    return tuple(replace(stack, loop=shown(stack.loop)) if stack.loop is not None else stack for stack in told)


def shown(loop: LoopFacts | None) -> LoopFacts | None:
    """A loop with its source's texts as a report may show them."""
    if loop is None or not loop.ways_out:
        return loop
    return replace(loop, ways_out=tuple(replace(way, text=one_line(way.text)) for way in loop.ways_out))
