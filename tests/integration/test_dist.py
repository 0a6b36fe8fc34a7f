"""`make dist`, as a whole: minutes, so only `make gallery` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.gallery
@pytest.mark.timeout(1200)
def test_sdist_and_wheel_work_in_clean_environments() -> None:
    done = subprocess.run([sys.executable, "-m", "scripts.check_dist"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("checked")
