"""The driver tells of Xid errors only to those who listen when they happen: from the first rank on."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.model import Job
from hangwatch_agent.capture.gpu import Gpus
from hangwatch_agent.watchdog import assemble
from tests.unit.agent.readings import rank_state


@pytest.mark.parametrize("driver", [True, False])
def test_the_watchdog_listens_from_the_first_rank_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: bool
) -> None:
    started: list[Gpus] = []
    monkeypatch.setattr(Gpus, "start", lambda self: started.append(self))
    monkeypatch.setattr(assemble, "NVIDIA", tmp_path if driver else tmp_path / "missing")
    evidence = assemble.Evidence(Job("j", "j", None), root=None, run_id="r")
    evidence.remember(())
    assert started == []
    evidence.remember((rank_state(0),))
    evidence.remember((rank_state(0), rank_state(1)))
    assert len(started) == (1 if driver else 0)
