"""`hangwatch run` changes nothing about a command: exit codes, signals, streams, and when it ends."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangwatch.report import files
from hangwatch_agent.shared import procfs

RUN = [sys.executable, "-m", "hangwatch", "run", "--"]

COUNTER = """
import signal, sys, time
got = []
signal.signal({number}, lambda *_: got.append(1))
print('ready', flush=True)
deadline = time.time() + 100
while not got and time.time() < deadline:
    time.sleep(0.05)
time.sleep(0.5)
sys.exit(40 + len(got))
"""


def run(folder: Path, *command: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*RUN, *command], cwd=folder, capture_output=True, text=True, timeout=200, **options
    )


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    done = run(tmp_path, "sh", "-c", f"exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_healthy_command_leaves_no_files(tmp_path: Path) -> None:
    run(tmp_path, *python("print('done')"))
    assert list(tmp_path.iterdir()) == []


def test_streams_are_the_commands_own(tmp_path: Path) -> None:
    done = run(tmp_path, "sh", "-c", "cat; echo problem >&2", input="hello\n")
    assert (done.stdout, done.stderr) == ("hello\n", "problem\n")


def test_death_by_a_signal_is_death_by_that_signal(tmp_path: Path) -> None:
    assert run(tmp_path, "sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_to_us_alone_reach_the_command_once(tmp_path: Path, number: signal.Signals) -> None:
    code = COUNTER.format(number=int(number))
    with subprocess.Popen([*RUN, *python(code)], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(200) == 41


def test_being_stopped_for_a_while_is_no_signal_to_the_command(tmp_path: Path) -> None:
    """GIVEN a command that got a signal WHEN hangwatch is stopped and continued (Ctrl-Z, fg) THEN it gets no other."""
    code = COUNTER.format(number=int(signal.SIGUSR1)).replace("while not got", "while len(got) < 2")
    with subprocess.Popen([*RUN, *python(code)], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        for _ in range(2):
            time.sleep(0.3)
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            process.send_signal(signal.SIGCONT)
        time.sleep(1.5)
        assert process.poll() is None
        process.send_signal(signal.SIGUSR1)
        assert process.wait(200) == 42


def test_ctrl_c_in_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    code = COUNTER.format(number=int(signal.SIGINT))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [*RUN, *python(code)])
    assert b"ready" in os.read(terminal, 100)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 41
    os.close(terminal)


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "no-such-command-at-all")
    assert done.returncode == 2
    assert "cannot run no-such-command-at-all" in done.stderr
    assert "PATH" in done.stderr


def test_nothing_to_run(tmp_path: Path) -> None:
    done = subprocess.run(RUN, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert "nothing to run" in done.stderr


def test_an_orphan_that_lives_on_does_not_delay_the_end(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run(tmp_path, "sh", "-c", "sleep 200 >/dev/null 2>&1 & echo $!")
    orphan = int(done.stdout)
    try:
        assert done.returncode == 0
        assert time.monotonic() - started < 150
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_the_command_has_no_signal_blocked(tmp_path: Path) -> None:
    """Those that hangwatch blocks in its own process are not blocked in the command."""
    done = run(tmp_path, *python("import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"))
    assert done.stdout == "[]\n"


def test_no_board_folder_can_be_had(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "HANGWATCH_RUN_DIR": str(tmp_path / "file")}
    done = run(tmp_path, *python("print('trains')"), env=environment)
    assert "trains" in done.stdout
    assert "HANGWATCH_RUN_DIR" in done.stderr
    assert done.returncode == 0


# ------------------------------------------------------------------------------------------------ faults of our own

FAULTY = """
import sys, threading
from hangwatch_agent.watchdog import assemble, run_command
{fault}
from hangwatch.settings import Settings
command = [sys.executable, "-c", "import time; time.sleep(1); print('trained'); exit(7)"]
sys.exit(run_command.supervise(command, Settings()))
"""
FAULTS = {
    "built": "def broken(*a, **k): raise ValueError('unforeseen')\nassemble.watchdog = broken",
    "thread": 'def broken(self): raise RuntimeError("can\'t start new thread")\nthreading.Thread.start = broken',
    "import": "import hangwatch_agent.watchdog as room\nsys.modules[assemble.__name__] = None\ndel room.assemble",
    "run": "from hangwatch_agent.watchdog.loop import Watchdog\nWatchdog.run = lambda self: 1 / 0",
    "close": "from hangwatch_agent.watchdog.loop import Watchdog\nWatchdog.finish_abort = lambda self, slack: 1 / 0",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_ours_costs_the_watch_and_not_the_job(tmp_path: Path, fault: str) -> None:
    """GIVEN a watchdog that cannot be built, started or run WHEN a command runs THEN it is waited for."""
    code = FAULTY.format(fault=FAULTS[fault])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (7, "trained\n"), done.stderr
    assert done.stderr.count("not watching any more") == 1, done.stderr


def test_a_run_dir_that_others_may_read_is_refused_and_left_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    environment = {**os.environ, "HANGWATCH_RUN_DIR": str(shared)}
    done = run(tmp_path, *python("print('trains')"), env=environment)
    assert (done.returncode, done.stdout) == (0, "trains\n")
    assert "others may read or write it (mode 755)" in done.stderr
    assert shared.stat().st_mode & 0o777 == 0o755
    assert list(shared.iterdir()) == []


# ------------------------------------------------------------------------------------------------ what a kill leaves


def test_the_next_run_sweeps_what_a_killed_one_has_left(tmp_path: Path) -> None:
    # GIVEN a run that was killed while its command still runs, and one whose command has ended too
    boards = tmp_path / "boards"
    environment = {**os.environ, "HANGWATCH_RUN_DIR": str(boards)}

    def killed_run() -> tuple[Path, int]:
        code = "import os, time; print(os.getpid(), os.environ['HANGWATCH_RUN_DIR'], flush=True); time.sleep(300)"
        with subprocess.Popen([*RUN, *python(code)], stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            pid, folder = process.stdout.readline().split()
            deadline = time.monotonic() + 100
            owner = Path(folder) / "owner"
            while not (owner.exists() and owner.stat().st_size) and time.monotonic() < deadline:
                time.sleep(0.05)
            process.kill()
            process.wait()
            process.stdout.close()
            return Path(folder), int(pid)

    living, command = killed_run()
    dead, other = killed_run()
    os.kill(other, signal.SIGKILL)
    while (stat := procfs.stat_of(other)) is not None and stat.state not in "XZ":
        time.sleep(0.05)
    try:
        # WHEN the next one of this user starts
        code = f"import os, time\nfor _ in range(600):\n    if os.path.exists({str(dead)!r}): time.sleep(0.1)"
        assert run(tmp_path, *python(code), env=environment).returncode == 0
        # THEN only the folder that no process uses is gone
        assert not dead.exists()
        assert living.exists()
    finally:
        os.kill(command, signal.SIGKILL)


# ------------------------------------------------------------------------------------------------ other pid namespaces

RANK = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(60):  # not until a moment: the ranks' clocks would not agree on the last call
    dist.barrier()
    time.sleep(0.1)
dist.destroy_process_group()
print("rank done", os.getpid(), flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="a pid namespace needs root")
def test_a_healthy_job_in_a_pid_namespace_of_its_own(tmp_path: Path) -> None:
    """As containers do it: the ranks call themselves by numbers that mean other processes outside."""
    (tmp_path / "rank.py").write_text(RANK)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "rank.py"]
    done = run(tmp_path, "unshare", "--pid", "--fork", "--mount-proc", *launch)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rank done") == 2
    assert [line for line in done.stderr.splitlines() if "hangwatch" in line] == []
    assert not (tmp_path / "hangwatch-reports").exists()


@pytest.mark.gallery
@pytest.mark.skipif(os.getuid() != 0, reason="a pid namespace needs root")
def test_a_hang_in_a_pid_namespace_of_its_own(tmp_path: Path) -> None:
    """Its ranks are named by the pids that an operator outside sees, with their stacks."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "rank.py"]
    hangs = "time.sleep(1000) if dist.get_rank() else dist.barrier()"
    (tmp_path / "rank.py").write_text(RANK.replace("for _", f"{hangs}\nfor _"))
    command = [*RUN[:-1], "--on-hang", "abort", "--stall-after", "5", "--"]
    done = subprocess.run(
        [*command, "unshare", "--pid", "--fork", "--mount-proc", *launch],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 75, done.stderr
    assert "HUNG" in done.stderr
    assert "died" not in done.stderr
    incident = files.read(next((tmp_path / "hangwatch-reports").glob("incident-*.json")))
    assert len({rank.pid for rank in incident.ranks} - {None}) == 2
    assert all((rank.pid or 0) > 20 for rank in incident.ranks)
    assert all(rank.stacks and rank.process and rank.process.state not in "XZ" for rank in incident.ranks)


# ------------------------------------------------------------------------------------------------ no room for boards


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory that has no room for a board."""
    folder = tmp_path / "small"
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.gallery
def test_boards_without_room_lie_elsewhere_and_are_watched(tmp_path: Path, small: Path) -> None:
    # GIVEN a run directory without room WHEN a rank hangs THEN it says where its board is, and the hang is noticed
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    environment = {**os.environ, "HANGWATCH_RUN_DIR": str(small), "TMPDIR": str(elsewhere)}
    hangs = "time.sleep(1000) if dist.get_rank() else dist.barrier()"
    (tmp_path / "rank.py").write_text(RANK.replace("for _", f"{hangs}\nfor _"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "rank.py"]
    command = [*RUN[:-1], "--on-hang", "abort-attempt", "--stall-after", "5", "--", "sh", "-c", '"$@"; exit 0', "sh"]
    done = subprocess.run(
        [*command, *launch], cwd=tmp_path, capture_output=True, text=True, timeout=250, env=environment
    )
    assert done.stderr.count("has no room for a board; it lies in") == 2, done.stderr
    assert "HUNG" in done.stderr
    assert done.returncode == 75  # although the shell hides how the job has ended
    assert [path.name for path in elsewhere.glob("hangwatch-*/run-*")] == []


# ------------------------------------------------------------------------------------ what the shell has prepared


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[bytes]:
    """`line` in bash, with `$W` before a command that is watched and `$PY` for Python."""
    environment = {**os.environ, "W": " ".join(RUN), "PY": sys.executable, "HANGWATCH_RUN_DIR": str(folder / "boards")}
    return subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, timeout=200)


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_stay_closed_and_nothing_else_changes(tmp_path: Path, closed: str) -> None:
    code = "import os, sys; open('seen', 'w').write(repr([sys.stdin is None, sys.stdout is None, sys.stderr is None]))"
    (tmp_path / "seen.py").write_text(code + "; sys.exit(6)")
    seen = []
    for watch in ("", "$W "):
        assert shell(tmp_path, f"{watch}$PY seen.py {closed}").returncode == 6
        seen.append((tmp_path / "seen").read_text())
    assert seen[0] == seen[1]


def test_a_rank_without_standard_error_that_cannot_be_watched_goes_on(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text("import os, torch; open('trained', 'w').write('yes')")
    no_folder = "rm -rf boards/*; touch boards/$(basename $HANGWATCH_RUN_DIR)"
    line = f"RANK=0 WORLD_SIZE=1 $W bash -c '{no_folder}; $PY rank.py' 2>&-"
    assert shell(tmp_path, line).returncode == 0
    assert (tmp_path / "trained").read_text() == "yes"


@pytest.mark.parametrize("line", ["$W cat <(echo config)", "exec 9>lock; $W bash -c 'echo config >&9'; cat lock"])
def test_descriptors_that_the_shell_has_opened_are_the_commands(tmp_path: Path, line: str) -> None:
    done = shell(tmp_path, line)
    assert (done.returncode, done.stdout) == (0, b"config\n"), done.stderr


def test_empty_parts_of_the_path_are_the_working_directory(tmp_path: Path) -> None:
    """As in PYTHONPATH=$PYTHONPATH:/my/library where the first was not set."""
    (tmp_path / "beside.py").write_text("print('found')")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "main.py").write_text("import beside")
    assert shell(tmp_path, 'PYTHONPATH="$PYTHONPATH:" $W $PY folder/main.py').stdout == b"found\n"


def test_a_signal_of_the_commands_own_to_its_process_group_is_had_once(tmp_path: Path) -> None:
    """`kill 0`, as launch scripts do in `trap 'kill 0' EXIT`: hangwatch is in that group as well."""
    (tmp_path / "program.py").write_text(COUNTER.format(number=int(signal.SIGUSR1)))
    (tmp_path / "kill.py").write_text(
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, 'program.py'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "os.kill(0, signal.SIGUSR1)\n"
        "sys.exit(child.wait())\n"
    )
    done = shell(tmp_path, "trap '' USR1; setsid -w $W $PY kill.py")
    assert done.returncode == 41, done.stderr
