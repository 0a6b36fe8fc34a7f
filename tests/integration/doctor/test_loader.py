"""`hangwatch doctor loader` on real loaders with real workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangwatch.doctor import Check, loader
from hangwatch.doctor.loader import LoaderReport
from hangwatch.wire import codec
from tests.integration.dashboard.processes import ROOT

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(200)
LOADERS = Path(__file__).parent / "loaders.py"


def wrong(name: str, seconds: float = 12.0, ranks: int = 2) -> dict[str, Check]:
    report = loader.run(f"{LOADERS}:{name}", seconds=seconds, ranks=ranks)
    return {check.name: check for check in report.checks if check.state in ("warn", "fail") and check.name != "workers"}


def test_the_command_says_what_is_well(tmp_path: Path) -> None:
    """GIVEN a DistributedSampler that asks torch for its rank THEN all is well, and the JSON has the walks."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "hangwatch",
            "doctor",
            "loader",
            f"{LOADERS}:good",
            "--json",
            str(tmp_path / "out.json"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "agent")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the ranks divide 101 samples" in done.stdout
    report = codec.decode(LoaderReport, json.loads((tmp_path / "out.json").read_text()))
    assert [walk.length for walk in report.walks if walk.purpose == "rank"] == [13, 13]
    assert {check.name for check in report.checks if check.state == "ok"} >= {
        "lengths",
        "shares",
        "set_epoch",
        "repeatable",
    }


@pytest.mark.gallery
def test_lengths_that_differ_are_forecast() -> None:
    found = wrong("uneven", ranks=2)
    assert set(found) == {"lengths"}
    assert (
        found["lengths"].found
        == "rank 1 has 50 batches an epoch, others up to 51: the job will hang at epoch 0, batch 50"
    )


@pytest.mark.gallery
@pytest.mark.parametrize(
    ("name", "check", "said"),
    [
        ("copies", "shares", "every rank draws all 101 samples: RandomSampler does not divide them"),
        ("broken", "errors", "ValueError: sample 50 is damaged"),
        ("skipping", "batch size", "batch sizes vary before the last batch: 3, 4"),
        ("nones", "None", "batches of rank 0 are None"),
        ("racing", "repeatable", "differ between two walks with the same seed, first batch 0"),
        ("undivided", "len()", "len(loader) says 10 batches, the loader gives 20"),
        ("undivided", "shares", "every rank gets the same 20 batches of Stream"),
        ("growing", "memory", "an epoch on rank 0"),
        ("stalling", "stalls", "took 1.5 s"),
        ("same_order", "set_epoch", "Stuck.set_epoch(1) does not change the order"),
        ("skipping", "spawn", "collate_fn: "),
        ("never", "made", "did not give a loader in time"),
        ("no_loader", "made", "it returned a int, not a DataLoader"),
        ("absent", "made", "has no absent"),
    ],
)
def test_what_is_wrong_with_a_loader(name: str, check: str, said: str) -> None:
    found = wrong(name, seconds=20 if name == "stalling" else 10)
    assert check in found, found
    assert said in found[check].found


@pytest.mark.gallery
def test_an_error_is_told_with_the_users_line() -> None:
    assert "loaders.py:" in wrong("broken")["errors"].found


@pytest.mark.gallery
def test_files_that_are_left_open(tmp_path: Path) -> None:
    growing = LOADERS.read_text().replace('bytearray(b"x" * (1 << 20))', "0")
    (tmp_path / "loaders_of_files.py").write_text(growing)
    report = loader.run(f"{tmp_path}/loaders_of_files.py:growing", seconds=10)
    assert "open files" in {check.name for check in report.checks if check.state == "warn"}


@pytest.mark.gallery
def test_ranks_with_data_of_their_own_are_innocent() -> None:
    assert wrong("own_data") == {}
