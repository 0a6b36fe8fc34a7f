"""`--on-forecast abort`: a job that will hang at the end of its epoch is ended while it still runs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.dashboard.processes import ROOT

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(200)
SCRIPT = ROOT / "hangwatch" / "gallery" / "uneven_steps.py"


def play(folder: Path, *options: str) -> tuple[int, str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    run = [sys.executable, "-m", "hangwatch", "run", "--report-dir", str(folder), "--on-forecast", "abort", "--"]
    done = subprocess.run([*run, *torchrun, *options], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_job_that_will_hang_hours_later_is_ended_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    code, said = play(tmp_path, "--steps", "20000")
    assert code == 75
    assert "the job will hang at epoch 0, batch 20000 (step 20000)" in said
    assert "what to do: give every rank the same number of batches" in said
    assert "ended the job before it hangs" in said
    assert time.monotonic() - began < 120
    assert list(tmp_path.glob("incident-*")) == []


@pytest.mark.gallery
def test_its_look_alike_runs_to_its_end(tmp_path: Path) -> None:
    code, said = play(tmp_path, "--healthy", "--steps", "60")
    assert (code, [line for line in said.splitlines() if line.startswith("hangwatch")]) == (0, [])
