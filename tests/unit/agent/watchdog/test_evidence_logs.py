"""Where the output of a rank is found that ended before it was seen alive."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.model import Job
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.watchdog import assemble
from tests.unit.agent.readings import rank_state

WORDS = "what(): 1024 vs 512. Received data size doesn't match expected size."


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def writer(log: Path, processes: ExitStack) -> int:
    """A process whose output goes to `log`."""
    with log.open("ab") as out:
        process = processes.enter_context(subprocess.Popen(["sleep", "60"], stdout=out, stderr=out))
    processes.callback(process.kill)
    return process.pid


def living(pid: int) -> RankState:
    state = rank_state(0)
    return replace(state, reading=replace(state.reading, identity=replace(state.reading.identity, pid=pid)))


@pytest.mark.parametrize("shared", [True, False])
def test_a_rank_that_was_never_seen_alive_wrote_where_its_launcher_and_another_rank_write(
    tmp_path: Path, processes: ExitStack, *, shared: bool
) -> None:
    log, own = tmp_path / "job.log", tmp_path / "rank-0.log"
    log.write_text(WORDS)
    root, pid = writer(log, processes), writer(log if shared else own, processes)
    gone = rank_state(1, state="X")
    evidence = assemble.Evidence(Job("j", "j", None), root=root, run_id="r")
    snapshot = evidence((living(pid), gone), lambda seconds: False)
    (found,) = (each.last_output for each in snapshot.ranks if each.rank == 1)
    assert (WORDS in found) is shared
