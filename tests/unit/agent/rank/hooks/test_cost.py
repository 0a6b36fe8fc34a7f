"""What the hooks of a step cost, counted and not timed: the same on a busy machine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import hangwatch_agent
from hangwatch.settings import Settings
from hangwatch_agent.rank import probe

OURS = str(Path(hangwatch_agent.__file__).parent)
MOST_BYTECODES, MOST_CALLS = (
    480,
    10,
)  # of Python 3.11: 476 and 10, 3 more in the slowest step, with torch's own test for torch.compile


@pytest.fixture
def step(tmp_path: Path, lone_group: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """One step of a plain training, hooked as in a rank, after the first of them."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    installed = probe.install(Settings(tick=1000.0), tmp_path)
    model = DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(DataLoader(torch.randn(4096, 4), 4))  # type: ignore[arg-type]

    def one() -> None:
        batch = next(batches)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    for _ in range(40):
        one()
    yield one
    installed.remove()


def counted(act: Callable[[], None]) -> tuple[Counter[str], Counter[str]]:
    """The bytecodes and the calls of hangwatch's functions while `act` runs, by function."""
    bytecodes: Counter[str] = Counter()
    calls: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if event == "call":
            if not (code.co_filename.startswith(OURS) or code.co_name == "is_dynamo_compiling"):
                return None
            calls[code.co_qualname] += 1
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            bytecodes[code.co_qualname] += 1
        return trace

    before = sys.gettrace()
    for _ in range(2):  # Python 3.12 and later tell of a function's instructions only the second time
        bytecodes.clear()
        calls.clear()
        sys.settrace(trace)
        try:
            act()
        finally:
            sys.settrace(before)
    return bytecodes, calls


def test_a_step_runs_few_bytecodes_of_ours(step: Callable[[], None]) -> None:
    bytecodes, calls = counted(step)
    assert 100 < bytecodes.total() <= MOST_BYTECODES, bytecodes
    assert 5 < calls.total() <= MOST_CALLS, calls


def test_every_step_costs_the_same(step: Callable[[], None]) -> None:
    first, *others = [counted(step)[0].total() for _ in range(20)]
    assert all(abs(other - first) < 20 for other in others)
