from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from hangwatch.model import LoaderFacts, Reading
from hangwatch_agent.board import layout
from hangwatch_agent.board.reader import read_board
from hangwatch_agent.rank import guard
from hangwatch_agent.rank.hooks.context import Context
from hangwatch_agent.rank.identity import describe


@dataclass
class Watched:
    """A context with a real board, and what a reader makes of it."""

    context: Context
    path: Path
    publish: list[Callable[[], None]] = field(default_factory=list)  # what the ticker would call

    @property
    def reading(self) -> Reading:
        for publish in (self.context.steps.publish, *self.publish):
            publish()
        return read_board(self.path)

    @property
    def loader(self) -> LoaderFacts:
        (loader,) = self.reading.loaders
        return loader

    @property
    def steps(self) -> list[tuple[int, int | None, int | None]]:
        return [(entry.step, entry.epoch, entry.batch) for entry in self.reading.steps]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    context = Context()
    path = tmp_path / layout.board_name(os.getpid(), 1)
    context.identity = describe({"RANK": "0", "WORLD_SIZE": "1"})
    context.board.open(path, context.identity)
    guard.raise_swallowed(True)
    yield Watched(context, path)
    guard.raise_swallowed(False)
    context.board.forget()


@pytest.fixture
def lone_group() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
