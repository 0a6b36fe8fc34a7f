"""What the terminal says of real jobs that stand still before anything is proven, and of slow ones that do not."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from hangwatch.commands.trial import Trial
from hangwatch.gallery import CASES, command
from hangwatch_agent.watchdog.first_words import FIRST_STEP_S
from tests.integration.conftest import leave_unmeasured

STARTING = "no rank has been started"  # a true line as well, of a busy machine: before the one that a case is about
WORDS = re.compile(r"^hangwatch: no progress for (\d+) s: (.*)$", re.MULTILINE)
OF_RANKS = WORDS.pattern.replace("(.*)", f"(?!{STARTING})(.*)")
SECONDS = 90.0  # for a machine that is busy with other tests
LATE = 15.0  # seconds since the last progress
LATE_START = FIRST_STEP_S + LATE  # a launcher that is about to start its ranks after 10 s is looked at again then
START_AFTER = 80.0  # later than that line

PAUSES = """
import sys, time
import torch.distributed as dist

def prepare(seconds):
    time.sleep(seconds)

dist.init_process_group("gloo")
rank = dist.get_rank()
steps, first, last, pause = map(int, sys.argv[1:])
for step in range(steps):
    if first <= step <= last and rank == 1:
        prepare(pause)
    dist.barrier()
    {tick}
dist.destroy_process_group()
"""
BEFORE_INIT = """
import os, socket, torch.distributed as dist

def log_in():
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(server.getsockname()) as tracker:
        tracker.recv(1)

if os.environ["RANK"] == "1":
    log_in()
dist.init_process_group("gloo")
"""


@dataclass(frozen=True)
class Heard:
    """What a job's terminal showed."""

    text: str
    exit_code: int | None

    @property
    def lines(self) -> list[tuple[float, str]]:
        """(seconds without progress, what is known) of each line of a standstill."""
        return [(float(found[1]), found[2]) for found in WORDS.finditer(self.text)]

    @property
    def first(self) -> tuple[float, str]:
        """The first one about ranks."""
        return next(line for line in self.lines if not line[1].startswith(STARTING))


def listen(words: list[str], folder: Path, *, until: str, options: tuple[str, ...] = ()) -> Heard:
    """Run a command under watch until a line that matches `until` is shown, or it ends; then end it."""
    log, deadline = folder / "output.txt", time.monotonic() + SECONDS
    environment = {**os.environ, "HANGWATCH_START_AFTER": str(START_AFTER)}
    with log.open("wb") as output, Trial(words, folder / "reports", options, output.fileno(), environment) as job:
        while (
            time.monotonic() < deadline
            and job.exit_code is None
            and not re.search(until, log.read_text(), re.MULTILINE)
        ):
            time.sleep(0.2)
        exit_code = job.exit_code
    return Heard(log.read_text(), exit_code)


def script(folder: Path, text: str, *arguments: object) -> list[str]:
    """The words that run `text` with two ranks."""
    path = folder / "train.py"
    path.write_text(text)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return [*launcher, str(path), *map(str, arguments)]


LINES = {
    "worker-on-socket": r"rank 0 waits in backward \(loader_worker_blocked\.py:\d+\) for rank 1, which waits"
    r" \(loader_worker_blocked\.py:\d+\) for loader worker \d \(pid \d+\), which waits on socket .* in fetch"
    r" \(loader_worker_blocked\.py:\d+\); reported as hung after 60 s",
    "checkpoint-slow": r"rank 1 waits in barrier \(slow_checkpoint\.py:\d+\) for rank 0, which reads or writes a"
    r" checkpoint \(slow_checkpoint\.py:\d+\), \d.* in the last second; not reported as hung while this lasts",
    # Counted from torchrun's own start, which the watchdog sees a little later.
    "second-node-missing": r"no rank has been started; torchrun \(pid \d+\) runs;"
    r" reported as hung after 5 min (1\d|20) s",
}


def of_gallery(folder: Path, case: str) -> Heard:
    found = next(each for each in CASES if each.name == case)
    return listen(command(found), folder, until=WORDS.pattern if case == "second-node-missing" else OF_RANKS)


def before_init(folder: Path) -> Heard:
    return listen(script(folder, BEFORE_INIT), folder, until=OF_RANKS)


def with_a_pause(folder: Path) -> Heard:
    words = script(folder, PAUSES.format(tick="time.sleep(0.05)"), 240, 40, 40, 14)
    return listen(words, folder, until=r"sleeps in prepare[\s\S]*moving again", options=("--stall-after", "60"))


JOBS: dict[str, Callable[[Path], Heard]] = {
    **{case: partial(of_gallery, case=case) for case in LINES},
    "before-init": before_init,
    "pause": with_a_pause,
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[Heard]]]:
    """What the terminals of all jobs showed: two of them side by side, for they do nothing most of the time."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        leave_unmeasured(patch)
        yield {name: pool.submit(job, tmp_path_factory.mktemp(name)) for name, job in JOBS.items()}


@pytest.mark.parametrize("case", LINES)
def test_one_line_says_what_is_known(case: str, jobs: Mapping[str, Future[Heard]]) -> None:
    heard, starts = jobs[case].result(), case == "second-node-missing"
    after, known = heard.lines[0] if starts else heard.first
    assert re.fullmatch(LINES[case], known)
    assert after <= (LATE_START if starts else LATE)
    assert "HUNG" not in heard.text


def test_a_rank_before_init_is_awaited_by_name(jobs: Mapping[str, Future[Heard]]) -> None:
    after, known = jobs["before-init"].result().first
    assert re.fullmatch(
        r"rank 0 waits in init_process_group \(train\.py:\d+\) for rank 1, which waits on socket .* in log_in"
        r" \(train\.py:\d+\); reported as hung after 60 s",
        known,
    )
    assert after <= LATE


def test_a_pause_that_ends_is_told_and_its_end(jobs: Mapping[str, Future[Heard]]) -> None:
    heard = jobs["pause"].result()
    _, known = heard.first
    assert known.startswith("rank 0 waits in barrier (train.py:")
    assert "for rank 1, which sleeps in prepare (train.py:" in known
    ended = re.search(r"^hangwatch: moving again after (\d+) s$", heard.text.partition(known)[2], re.MULTILINE)
    assert ended is not None
    assert 13 <= int(ended[1]) <= 40


@pytest.mark.gallery  # half a minute of standing still
def test_steps_of_twelve_seconds_are_not_told(tmp_path: Path) -> None:
    ticking = PAUSES.format(tick="import hangwatch; hangwatch.attach(); hangwatch.tick()")
    heard = listen(script(tmp_path, ticking, 2, 0, 1, 12), tmp_path, until="never")
    assert heard.exit_code == 0
    assert not heard.lines
