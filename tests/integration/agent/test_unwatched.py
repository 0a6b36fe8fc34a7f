"""Ranks that hangwatch cannot get into are named, with what to do; short errands with RANK leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangwatch_agent.rank.bootstrap import bootstrap_folder
from tests import needs

RUN = [sys.executable, "-m", "hangwatch", "run", "--"]
TRAINS = "import torch, time; time.sleep(5); print('trained')"


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "HANGWATCH_START_AFTER": "1"}
    return subprocess.run([*RUN, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ((sys.executable, "-I", "-c", TRAINS), "Python was started with -I"),
        (("env", "PYTHONPATH=/nowhere", sys.executable, "-c", TRAINS), "PYTHONPATH was replaced"),
    ],
)
def test_a_rank_that_is_not_watched_is_named_once(tmp_path: Path, command: tuple[str, ...], reason: str) -> None:
    done = run(tmp_path, *command)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    told = [line for line in done.stderr.splitlines() if "not watched" in line]
    assert len(told) == 1
    assert told[0].startswith("hangwatch: rank 0 is not watched: ")
    assert reason in told[0]
    assert "hangwatch.attach()" in told[0]


def test_a_sitecustomize_before_ours_is_named(tmp_path: Path) -> None:
    """Python imports the first that it finds: with another one in front of it, hangwatch's never runs."""
    (tmp_path / "sitecustomize.py").touch()
    prepended = f'PYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} -c "{TRAINS}"'
    done = run(tmp_path, "sh", "-c", prepended)
    assert done.stdout == "trained\n"
    assert f"rank 0 is not watched: {tmp_path}/sitecustomize.py is found before hangwatch's own" in done.stderr


def test_a_container_without_hangwatch_is_named(tmp_path: Path) -> None:
    """A container that keeps the environment, and sees other files than the machine."""
    needs.root()
    hidden = f'mount -t tmpfs none {bootstrap_folder()}; exec {sys.executable} -c "{TRAINS}"'
    done = run(tmp_path, str(needs.program("unshare")), "--mount", "sh", "-c", hidden)
    assert done.stdout == "trained\n"
    assert f"rank 0 is not watched: its container has no {bootstrap_folder()}" in done.stderr


def test_a_rank_that_is_watched_is_not_named(tmp_path: Path) -> None:
    done = run(tmp_path, sys.executable, "-c", TRAINS)
    assert (done.stdout, "not watched" in done.stderr) == ("trained\n", False)


LISTING = "import os; print(sorted(name for name in os.listdir(os.environ['HANGWATCH_RUN_DIR'])))"


def test_errands_with_a_rank_leave_no_board(tmp_path: Path) -> None:
    """GIVEN short and long processes with RANK that only import torch WHEN they end THEN nothing of them is left."""
    errands = f"{sys.executable} -c 'import torch'; {sys.executable} -c 'import torch, time; time.sleep(3)'"
    done = run(tmp_path, "sh", "-c", f'{errands}; {sys.executable} -c "{LISTING}"')
    assert done.stdout == "['owner']\n"  # whose folder it is; no board, and no answer to the watchdog


@pytest.mark.parametrize(
    "deed",
    [
        "for _ in torch.utils.data.DataLoader([1, 2]): pass",
        "torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)",
        "1 / 0",
    ],
)
def test_a_rank_keeps_its_board(tmp_path: Path, deed: str) -> None:
    (tmp_path / "rank.py").write_text(f"import torch, os, time\n{deed}\ntime.sleep(0.3)\nos._exit(0)\n")
    script = f"{sys.executable} rank.py"
    done = run(tmp_path, "sh", "-c", f'{script} 2>/dev/null; {sys.executable} -c "{LISTING}"')
    assert "rank-" in done.stdout
