"""One training script, every way to start and to watch it: the verdict is the same, and a healthy job feels nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hangwatch.gallery import HERE
from hangwatch.model import Certainty, Status
from hangwatch.report import files
from tests.integration.playing import PATIENT, Played, assert_not_hung, blamed, play_command
from tests.ports import free_port

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("unmeasured"),
]  # some start two jobs, one after the other

TRAIN = str(Path(__file__).parent / "scripts" / "train.py")


def torchrun(ranks: int, *arguments: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        TRAIN,
        *arguments,
    ]


def spawn(ranks: int, *arguments: str) -> list[str]:
    return [sys.executable, TRAIN, f"--spawn={ranks}", f"--port={free_port()}", *arguments]


def plain(ranks: int, *arguments: str) -> list[str]:
    launch = [sys.executable, str(HERE / "launch_plain.py"), f"--ranks={ranks}", f"--port={free_port()}"]
    return [*launch, TRAIN, *arguments]


LAUNCHERS = {"torchrun": torchrun, "spawn": spawn, "plain": plain}


def assert_uneven(played: Played, short: int, ranks: int) -> None:
    incident = played.incident
    assert incident is not None, played.output
    assert (incident.verdict.cause, blamed(incident)) == ("uneven-steps", [short]), played.verdict
    assert incident.status is Status.HUNG
    assert incident.verdict.certainty is Certainty.PROVEN, played.verdict
    assert "37 of 40 batches in epoch 0" in played.verdict
    assert incident.verdict.culprits[0].pid == played.pids[short]
    assert incident.job.world_size == ranks
    assert sorted(rank.rank for rank in incident.ranks) == list(range(ranks))
    assert incident.detected_after_s < 15, "5 s is the goal, measured by the benchmark"
    assert "HUNG, proven" in played.output
    assert all(rank.stacks for rank in incident.ranks)
    silent = {note.rank for note in incident.capture if note.source == "collectives" and not note.ok}
    answers = [rank.collectives for rank in incident.ranks if rank.rank not in silent]  # all of them, in time
    assert all(answer.answer_cpu_s > 0 for answer in answers), "what a rank spends for us is told apart"


LONG = pytest.mark.gallery  # each launcher and each way in is among the others


@pytest.mark.parametrize(
    ("launcher", "ranks", "short"),
    [("torchrun", 2, 1), ("spawn", 3, 2), pytest.param("plain", 2, 0, marks=LONG)],
)
def test_hangwatch_run_needs_no_change_to_the_script(tmp_path: Path, launcher: str, ranks: int, short: int) -> None:
    words = LAUNCHERS[launcher](ranks, f"--short={short}")
    assert_uneven(play_command(words, tmp_path, stall_after=PATIENT), short, ranks)


@pytest.mark.parametrize(
    ("launcher", "ranks", "short"),
    [("torchrun", 3, 2), pytest.param("spawn", 2, 1, marks=LONG), ("plain", 2, 0)],
)
def test_attach_needs_no_wrapper(tmp_path: Path, launcher: str, ranks: int, short: int) -> None:
    words = LAUNCHERS[launcher](ranks, f"--short={short}", "--attach")
    assert_uneven(play_command(words, tmp_path, attaches=True, stall_after=PATIENT), short, ranks)


def test_the_thread_does_what_the_process_does(tmp_path: Path) -> None:
    words = torchrun(2, "--short=1", "--attach")
    environment = {"HANGWATCH_WATCHDOG": "thread"}
    played = play_command(words, tmp_path, attaches=True, environment=environment, stall_after=PATIENT)
    assert_uneven(played, 1, 2)


def test_a_healthy_job_feels_nothing(tmp_path: Path) -> None:
    """No line of ours, no file of ours, no process of ours, and the end is not delayed."""
    run = [sys.executable, "-m", "hangwatch", "run", "--", *torchrun(2, "--workers=2")]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rank done") == 2
    assert [line for line in done.stderr.splitlines() if "hangwatch" in line] == []
    assert list(tmp_path.iterdir()) == []


def test_a_healthy_job_that_attaches_leaves_no_watchdog(tmp_path: Path) -> None:
    boards = tmp_path / "boards"
    environment = {**os.environ, "HANGWATCH_RUN_DIR": str(boards)}
    words = torchrun(2, "--attach")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=250, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rank done") == 2
    assert [line for line in done.stderr.splitlines() if "hangwatch" in line] == []
    deadline = time.monotonic() + 60
    while list(boards.glob("*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(boards.glob("*")) == []


def test_a_rank_that_is_slow_for_a_while_is_not_hung(tmp_path: Path) -> None:
    """Ten seconds of silence within the default patience: waiting, and shown only on request."""
    played = play_command(torchrun(2, "--slow=10"), tmp_path, stall_after=120.0)
    assert played.exit_code == 0, played.output
    assert_not_hung(played)
    assert "hangwatch" not in played.output


@pytest.mark.gallery  # what it shows, a launcher that would restart shows as well
def test_abort_ends_the_job_with_75(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "hangwatch", "run", "--on-hang", "abort", "--", *torchrun(2, "--short=1")]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 75, done.stderr
    assert "HUNG, proven" in done.stderr
    assert len(list((tmp_path / "hangwatch-reports").glob("incident-*.json"))) == 1


def test_a_launcher_that_restarts_gets_its_chance(tmp_path: Path) -> None:
    elastic = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    run = [sys.executable, "-m", "hangwatch", "run", "--on-hang", "abort-attempt", "--"]
    done = subprocess.run(
        [*run, *elastic, TRAIN, "--short=1", "--once"], cwd=tmp_path, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rank done") == 2
    assert done.stderr.count("HUNG, proven") == 1
    assert "RECOVERED" not in done.stderr
    assert len(list((tmp_path / "hangwatch-reports").glob("incident-*.json"))) == 1


def test_abort_ends_a_launcher_that_would_restart(tmp_path: Path) -> None:
    elastic = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3"]
    run = [sys.executable, "-m", "hangwatch", "run", "--on-hang", "abort", "--", *elastic, TRAIN, "--short=1"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 75, done.stderr
    assert done.stderr.count("HUNG, proven") == 1
    (report,) = (tmp_path / "hangwatch-reports").glob("incident-*.json")
    assert files.read(report).status is Status.HUNG
    assert [rank.pid for rank in files.read(report).ranks if rank.pid and psutil.pid_exists(rank.pid)] == []


@pytest.mark.parametrize("launcher", ["plain", pytest.param("torchrun", marks=LONG)])  # which gives its ranks 30 s
def test_a_ctrl_c_during_a_hang_ends_what_the_launcher_ends(tmp_path: Path, launcher: str) -> None:
    """torchrun ends its ranks. A launcher that does not leaves them behind in their collective, with us as without."""
    log = tmp_path / "log"
    run = [sys.executable, "-m", "hangwatch", "run", "--", *LAUNCHERS[launcher](2, "--short=1")]
    with log.open("wb") as output:
        process = subprocess.Popen(run, cwd=tmp_path, stdout=output, stderr=output)
        deadline = time.monotonic() + 200
        while b"report  " not in log.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(200) != 0
    assert b"HUNG, proven" in log.read_bytes()
    report = next((tmp_path / "hangwatch-reports").glob("incident-*.json"))
    pids = [rank.pid for rank in files.read(report).ranks if rank.pid is not None]
    assert len(pids) == 2
    left = [pid for pid in pids if psutil.pid_exists(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert launcher == "plain" or left == []
