"""Ranks that hangwatch cannot get into are named, with what to do; short errands with RANK leave nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from hangwatch_agent.rank.bootstrap import bootstrap_folder
from tests import needs

RUN = [sys.executable, "-m", "hangwatch", "run", "--"]
TRAINS = "import torch, time; time.sleep(5); print('trained')"
LISTING = "import os; print(sorted(name for name in os.listdir(os.environ['HANGWATCH_RUN_DIR'])))"
PYTHON = sys.executable

Done = subprocess.CompletedProcess[str]


def run(folder: Path, *command: str) -> Done:
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "HANGWATCH_START_AFTER": "1"}
    return subprocess.run([*RUN, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=200)


def isolated(folder: Path) -> Done:
    return run(folder, PYTHON, "-I", "-c", TRAINS)


def elsewhere(folder: Path) -> Done:
    return run(folder, "env", "PYTHONPATH=/nowhere", PYTHON, "-c", TRAINS)


def another_sitecustomize(folder: Path) -> Done:
    (folder / "sitecustomize.py").touch()
    return run(folder, "sh", "-c", f'PYTHONPATH={folder}:$PYTHONPATH exec {PYTHON} -c "{TRAINS}"')


def in_a_container(folder: Path) -> Done:
    """One that keeps the environment, and sees other files than the machine."""
    hidden = f'mount -t tmpfs none {bootstrap_folder()}; exec {PYTHON} -c "{TRAINS}"'
    return run(folder, str(needs.program("unshare")), "--mount", "sh", "-c", hidden)


def watched(folder: Path) -> Done:
    return run(folder, PYTHON, "-c", TRAINS)


def errands(folder: Path) -> Done:
    """Short and long processes with RANK that only import torch."""
    short, long = (f"{PYTHON} -c 'import torch{then}'" for then in ("", ", time; time.sleep(3)"))
    return run(folder, "sh", "-c", f'{short}; {long}; {PYTHON} -c "{LISTING}"')


def rank_that(folder: Path, deed: str) -> Done:
    (folder / "rank.py").write_text(f"import torch, os, time\n{deed}\ntime.sleep(0.3)\nos._exit(0)\n")
    return run(folder, "sh", "-c", f'{PYTHON} rank.py 2>/dev/null; {PYTHON} -c "{LISTING}"')


DEEDS = {
    "loads": "for _ in torch.utils.data.DataLoader([1, 2]): pass",
    "joins": "torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)",
    "fails": "1 / 0",
}
RUNS: dict[str, Callable[[Path], Done]] = {
    **{made.__name__: made for made in (isolated, elsewhere, another_sitecustomize, in_a_container, watched, errands)},
    **{name: partial(rank_that, deed=deed) for name, deed in DEEDS.items()},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[Done]]]:
    """What came of all of them: two side by side, for they do nothing most of the time."""
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(made, tmp_path_factory.mktemp(name)) for name, made in RUNS.items()}


@pytest.mark.parametrize(
    ("name", "reason"),
    [("isolated", "Python was started with -I"), ("elsewhere", "PYTHONPATH was replaced")],
)
def test_a_rank_that_is_not_watched_is_named_once(runs: Mapping[str, Future[Done]], name: str, reason: str) -> None:
    done = runs[name].result()
    assert (done.returncode, done.stdout) == (0, "trained\n")
    told = [line for line in done.stderr.splitlines() if "not watched" in line]
    assert len(told) == 1
    assert told[0].startswith("hangwatch: rank 0 is not watched: ")
    assert reason in told[0]
    assert "hangwatch.attach()" in told[0]


def test_a_sitecustomize_before_ours_is_named(runs: Mapping[str, Future[Done]]) -> None:
    """Python imports the first that it finds: with another one in front of it, hangwatch's never runs."""
    done = runs["another_sitecustomize"].result()
    assert done.stdout == "trained\n"
    named = re.search(r"rank 0 is not watched: (\S+)/sitecustomize\.py is found before hangwatch's own", done.stderr)
    assert named is not None
    assert f"PYTHONPATH={named[1]}:" in done.args[-1]


def test_a_container_without_hangwatch_is_named(runs: Mapping[str, Future[Done]]) -> None:
    needs.root()
    done = runs["in_a_container"].result()
    assert done.stdout == "trained\n"
    assert f"rank 0 is not watched: its container has no {bootstrap_folder()}" in done.stderr


def test_a_rank_that_is_watched_is_not_named(runs: Mapping[str, Future[Done]]) -> None:
    done = runs["watched"].result()
    assert (done.stdout, "not watched" in done.stderr) == ("trained\n", False)


def test_errands_with_a_rank_leave_no_board(runs: Mapping[str, Future[Done]]) -> None:
    """GIVEN short and long processes with RANK that only import torch WHEN they end THEN nothing of them is left."""
    left = runs["errands"].result().stdout
    assert left == "['owner']\n"  # whose folder it is; no board, and no answer to the watchdog


@pytest.mark.parametrize("deed", DEEDS)
def test_a_rank_keeps_its_board(runs: Mapping[str, Future[Done]], deed: str) -> None:
    assert "rank-" in runs[deed].result().stdout
