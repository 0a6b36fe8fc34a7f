"""What the hooks of a rank share: its board, its groups and its steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.rank.call_paths import CallPaths
from hangwatch_agent.rank.call_site import CallSites
from hangwatch_agent.rank.groups import Groups
from hangwatch_agent.rank.guard import Guard
from hangwatch_agent.rank.steps import Steps


def _nothing() -> None:
    return None


def _ignored(error: BaseException) -> None:
    return None


class Context:
    """One for each process. `unconfirmed` says that a loader's part is still a guess.

    Forwards and optimizer steps then call `training_seen` or `evaluation_seen`, which settle it.
    """

    def __init__(self) -> None:
        self.board = BoardWriter()
        self.guard = Guard(self.board.problem)
        self.groups = Groups(self.board)
        self.steps = Steps(self.board, self.groups)
        self.sites = CallSites()
        self.call_paths = CallPaths(self.board)
        self.identity: dict[str, Any] = {}
        self.waited: dict[int, int] = {}  # group slot -> number of the last call that a thread has waited for
        self.unconfirmed = False
        self.models: list[weakref.ref[Any]] = []  # wrapped in DistributedDataParallel since the probe is there
        self.met: Callable[[BaseException], None] = _ignored  # an error that the program may handle by itself
        self.training_seen: Callable[[], None] = _nothing
        self.evaluation_seen: Callable[[], None] = _nothing
