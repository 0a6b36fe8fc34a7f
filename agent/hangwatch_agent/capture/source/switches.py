"""What the user's code sets for the packages that run the training, from the files on the stacks of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from hangwatch.model import Frame, RankEvidence, Switch
from hangwatch.source import switches as source
from hangwatch.stacks.frames import origin
from hangwatch_agent.capture.source.files import Sources
from hangwatch_agent.capture.source.lines import one_line

MOST = 32  # of a node
MOST_FILES = 32  # of the user's, and of packages; a trainer's loops stand in a handful
LARGEST = 512 << 10  # characters of one of them; transformers' trainer has 200,000


def switches(ranks: Iterable[RankEvidence], sources: Sources, proc: Path) -> tuple[Switch, ...]:
    """Those of all ranks, whose stacks and recorded calls go through packages. Ranks share them.

    Callbacks often lie in a file of their own beside the program, and on no stack.
    """
    own: dict[str, str] = {}
    packages: dict[str, str] = {}
    folders: set[str] = set()
    for rank in ranks:
        lives = rank.process is not None and rank.process.state != "X"
        root = proc / str(rank.pid) / "root" if lives else None
        text_of = sources.reader(root)
        for file in dict.fromkeys(frame.file for frame in _frames(rank) if not frame.native):
            known = {"user": own, "package": packages}.get(origin(file))
            if known is not None and file not in known:
                _add(known, file, text_of)
        for file in list(own) if packages else ():
            if (folder := str(Path(file).parent)) not in folders:
                folders.add(folder)
                for beside in sources.beside(file, root)[:MOST_FILES]:
                    _add(own, beside, text_of)
    if not packages:
        return ()
    found = source.switches(own.items(), packages.items())
    return tuple(replace(each, condition=one_line(each.condition)) for each in found[:MOST])


def _frames(rank: RankEvidence) -> Iterator[Frame]:
    for stack in rank.stacks:
        yield from stack.frames
    for frames in {call.frames: None for call in rank.collectives.recent}:
        yield from frames


def _add(known: dict[str, str], file: str, text_of: Callable[[str], str | None]) -> None:
    """A rank can put any path into a frame: only Python files are read, and none relative to a folder of ours."""
    if file.startswith("/") and file.endswith(".py") and len(known) < MOST_FILES:
        text = text_of(file)
        if text is not None and len(text) <= LARGEST:
            known[file] = text
