"""The user's Python files of a job: those on the stacks and in the recorded calls of ranks, and those beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hangwatch.model import Frame, RankEvidence
from hangwatch.stacks.frames import origin
from hangwatch_agent.capture.source.files import Sources

MOST_FILES = 32  # of the user's, and of packages; a trainer's loops stand in a handful
LARGEST = 512 << 10  # characters of one of them; transformers' trainer has 200,000


def texts(ranks: Iterable[RankEvidence], sources: Sources, proc: Path) -> dict[str, str]:
    """The texts of the user's files by name, at most `MOST_FILES`. What cannot be read is left out."""
    own: dict[str, str] = {}
    folders: set[str] = set()
    for rank in ranks:
        root = root_of(rank, proc)
        for file in dict.fromkeys(frame.file for frame in frames_of(rank) if not frame.native):
            if file not in own and origin(file) == "user":
                add(own, file, sources.reader(root))
        add_beside(own, folders, sources, root)
    return own


def root_of(rank: RankEvidence, proc: Path) -> Path | None:
    """The root of the file system that the rank sees, while it lives."""
    lives = rank.process is not None and rank.process.state != "X"
    return proc / str(rank.pid) / "root" if lives else None


def frames_of(rank: RankEvidence) -> Iterator[Frame]:
    for stack in rank.stacks:
        yield from stack.frames
    for frames in {call.frames: None for call in rank.collectives.recent}:
        yield from frames


def add(known: dict[str, str], file: str, text_of: Callable[[str], str | None]) -> None:
    """A rank can put any path into a frame: only Python files are read, and none relative to a folder of ours."""
    if file.startswith("/") and file.endswith(".py") and len(known) < MOST_FILES:
        text = text_of(file)
        if text is not None and len(text) <= LARGEST:
            known[file] = text


def add_beside(own: dict[str, str], folders: set[str], sources: Sources, root: Path | None) -> None:
    """Add the files that lie beside those in `own`; `folders` are those that have been looked at."""
    for file in list(own):
        if (folder := str(Path(file).parent)) not in folders:
            folders.add(folder)
            for beside in sources.beside(file, root)[:MOST_FILES]:
                add(own, beside, sources.reader(root))
