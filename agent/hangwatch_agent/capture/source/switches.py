"""What the user's code sets for the packages that run the training, from the files on the stacks of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hangwatch.model import RankEvidence, Switch
from hangwatch.source import switches as source
from hangwatch.stacks.frames import origin
from hangwatch_agent.capture.source.files import Sources
from hangwatch_agent.capture.source.lines import one_line
from hangwatch_agent.capture.source.programs import add, add_beside, frames_of, root_of

MOST = 32  # of a node


def switches(ranks: Iterable[RankEvidence], sources: Sources, proc: Path) -> tuple[Switch, ...]:
    """Those of all ranks, whose stacks and recorded calls go through packages. Ranks share them.

    Callbacks often lie in a file of their own beside the program, and on no stack.
    """
    own: dict[str, str] = {}
    packages: dict[str, str] = {}
    folders: set[str] = set()
    for rank in ranks:
        root = root_of(rank, proc)
        for file in dict.fromkeys(frame.file for frame in frames_of(rank) if not frame.native):
            known = {"user": own, "package": packages}.get(origin(file))
            if known is not None and file not in known:
                add(known, file, sources.reader(root))
        if packages:
            add_beside(own, folders, sources, root)
    if not packages:
        return ()
    found = source.switches(own.items(), packages.items())
    return tuple(replace(each, condition=one_line(each.condition)) for each in found[:MOST])
