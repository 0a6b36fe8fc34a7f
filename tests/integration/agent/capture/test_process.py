"""Facts of real processes in every state that can be made."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from hangwatch.model import ProcessFacts
from hangwatch.wire import codec
from hangwatch_agent.capture import sample
from hangwatch_agent.capture.options import CaptureOptions
from hangwatch_agent.capture.proc.process import process_facts, second_sample
from hangwatch_agent.capture.proc.tcp_counters import tcp_counters
from hangwatch_agent.shared import procfs
from tests import needs
from tests.integration.agent.capture.conftest import Script, comes_to, stop

SLEEP = "import time; print('ready', flush=True); time.sleep(100)"


def until(pid: int, settled: Callable[[ProcessFacts], bool]) -> ProcessFacts:
    """The facts once they are as awaited: a process has said `ready` a moment before it blocks."""
    deadline = time.monotonic() + 60
    while not settled(facts := process_facts(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return facts


def test_a_sleeping_process(script: Script) -> None:
    began = time.time()
    process = script(
        SLEEP, env={**os.environ, "RANK": "3", "NCCL_DEBUG": "INFO", "HANGWATCH_TOKEN": "geheim", "HOME": "/x"}
    )
    facts = until(process.pid, lambda facts: "sleep" in (facts.system_call or ""))
    assert (facts.state, facts.parent, facts.threads) == ("S", os.getpid(), 1)
    assert facts.system_call in ("clock_nanosleep", "nanosleep", "pselect6", "select")
    assert "nanosleep" in (facts.wait_channel or "")
    assert 50 < (facts.sleeps_s or 0) <= 100
    assert facts.environment == {"HANGWATCH_TOKEN": "[redacted]", "NCCL_DEBUG": "INFO", "RANK": "3"}
    assert began - 10 < (facts.started_at or 0) < time.time() + 10
    assert (facts.resident_bytes or 0) > 1 << 20
    assert 0 < (facts.descriptors or 0) < (facts.descriptor_limit or 0)
    assert [pipe.fd for pipe in facts.standard_pipes] == [1]
    assert facts.unreadable == ()
    assert facts.unusual_threads == ()


def test_a_stopped_process_and_its_threads(script: Script) -> None:
    process = script(SLEEP)
    stop(process.pid)
    facts = process_facts(process.pid)
    assert facts.state == "T"
    assert [(thread.thread_id, thread.state) for thread in facts.unusual_threads] == [(process.pid, "T")]


@pytest.mark.parametrize(("end", "exit_code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9)])
def test_a_zombie_tells_its_exit_code(end: str, exit_code: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", f"import os, sys; {end}"])
    facts = until(process.pid, lambda facts: facts.state == "Z")
    process.wait()
    assert (facts.state, facts.exit_code, facts.environment, facts.unreadable) == ("Z", exit_code, {}, ())
    assert process_facts(process.pid).state == "X"


def test_uninterruptible_sleep(script: Script, tmp_path: Path) -> None:
    """As with a dead disk: the parent of a spawned child sleeps so until the child has come to its program."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = script(
        """
        import os, sys, threading, time
        threading.Timer(60, os._exit, [1]).start()
        print("ready", flush=True)
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 5, sys.argv[1], os.O_RDONLY, 0)])
        """,
        str(fifo),
        rests=False,
    )
    facts = until(process.pid, lambda facts: facts.state == "D")
    with fifo.open("w"):
        pass
    assert facts.state == "D"
    assert facts.unusual_threads[0].state == "D"
    assert facts.system_call in ("clone", "vfork", "clone3")


def test_blocked_on_a_full_pipe(script: Script) -> None:
    reader, writer = os.pipe()
    process = script(
        f"""
        import os
        print("ready", flush=True)
        while True:
            os.write({writer}, bytes(65536))
        """,
        pass_fds=(writer,),
    )
    facts = until(process.pid, lambda facts: facts.system_call == "write" and "pipe" in (facts.wait_channel or ""))
    os.close(reader)
    os.close(writer)
    assert facts.system_call == "write"
    assert "pipe_write" in (facts.wait_channel or "")
    assert facts.blocked_on is not None
    assert facts.blocked_on.fd == writer
    assert facts.blocked_on.path.startswith("pipe:[")


def test_blocked_on_a_lock_file(script: Script, tmp_path: Path) -> None:
    code = """
        import fcntl, sys, time
        file = open(sys.argv[1], "w")
        if sys.argv[2] == "waits":
            print("ready", flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
        print("ready", flush=True)
        time.sleep(100)
        """
    path = tmp_path / "data set.lock"
    script(code, str(path), "holds")
    waiting = script(code, str(path), "waits")
    facts = until(waiting.pid, lambda facts: facts.system_call == "flock")
    assert facts.system_call == "flock"
    assert facts.blocked_on is not None
    assert facts.blocked_on.path == str(path)
    assert facts.blocked_on.filesystem


@pytest.mark.parametrize("wait", ["connection.recv(4096)", "connection.settimeout(90); connection.recv(4096)"])
def test_what_comes_over_the_socket_that_it_waits_on(script: Script, wait: str) -> None:
    """A slow download: hardly any processor time, and no bytes in /proc/PID/io."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = script(
            f"""
            import socket
            connection = socket.create_connection(("127.0.0.1", {server.getsockname()[1]}))
            print("ready", flush=True)
            while True:
                {wait}
            """
        )
        accepted, _ = server.accept()
        first = until(process.pid, lambda facts: facts.received_bytes is not None)
        accepted.sendall(bytes(300))
        second = until(process.pid, lambda facts: facts.received_bytes == 300)
        accepted.close()
    assert first.received_bytes == 0
    assert second_sample(first, second).received_delta_bytes == 300
    assert second_sample(second, second).received_delta_bytes == 0


@pytest.mark.parametrize(
    ("wait", "call"),
    [
        ("connection.recv(1)", "recvfrom"),
        ("connection.settimeout(90); connection.recv(1)", "poll"),
        ("import select; select.select([connection], [], [])", "pselect6"),
    ],
)
def test_blocked_on_a_socket(script: Script, wait: str, call: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = script(
            f"""
            import socket
            connection = socket.create_connection(("127.0.0.1", {port}))
            print("ready", flush=True)
            {wait}
            """
        )
        accepted, address = server.accept()
        facts = until(process.pid, lambda facts: facts.blocked_on is not None)
        accepted.close()
    assert facts.system_call in (call, "select" if call == "pselect6" else call)
    assert facts.blocked_on is not None
    assert facts.blocked_on.path == f"socket 127.0.0.1:{address[1]} -> 127.0.0.1:{port}"
    assert [(each.state, each.remote) for each in facts.sockets] == [("established", f"127.0.0.1:{port}")]


def test_blocked_in_opening_a_path(script: Script, tmp_path: Path) -> None:
    fifo = tmp_path / "nobody writes"
    os.mkfifo(fifo)
    process = script("import sys; print('ready', flush=True); open(sys.argv[1])", str(fifo))
    facts = until(process.pid, lambda facts: facts.blocked_on is not None)
    assert facts.system_call == "openat"
    assert facts.blocked_on is not None
    assert (facts.blocked_on.fd, facts.blocked_on.path) == (-1, str(fifo))


def test_what_was_used_between_two_samples(script: Script) -> None:
    busy = script(
        """
        print("ready", flush=True)
        file = open("/dev/null", "wb", buffering=0)
        while True:
            file.write(bytes(1000))
        """,
        rests=False,
    )
    idle = script(SLEEP)
    first = [process_facts(process.pid) for process in (busy, idle)]
    until(busy.pid, lambda facts: (facts.cpu_s or 0) > (first[0].cpu_s or 0) + 0.05)  # others may have the processor
    worked, rested = (second_sample(before, process_facts(before.pid)) for before in first)
    assert worked.cpu_delta_s is not None
    assert worked.cpu_delta_s > 0.02
    assert worked.io_delta_bytes
    assert worked.io_delta_bytes >= 1000
    assert rested.cpu_delta_s is not None
    assert rested.cpu_delta_s < 0.02
    assert rested.io_delta_bytes == 0


def test_a_reused_pid_gives_no_difference(script: Script) -> None:
    facts = process_facts(script(SLEEP).pid)
    other = ProcessFacts(facts.pid, "S", started_at=1.0, cpu_s=0.0)
    assert second_sample(other, facts).cpu_delta_s is None


def test_a_reused_pid_is_not_taken_for_the_rank(script: Script) -> None:
    pid = script(SLEEP).pid
    stat = procfs.stat_of(pid)
    assert stat is not None
    started = procfs.started_at(stat)
    assert procfs.is_same(pid, started)
    assert not procfs.is_same(pid, started - 3600)
    assert not procfs.is_same(1 << 22, started)


def test_a_process_that_maps_its_board_is_the_rank_although_the_clock_was_set(script: Script, tmp_path: Path) -> None:
    board = tmp_path / "rank-0.board"
    board.write_bytes(bytes(4096))
    process = script(
        """
        import mmap, sys, time
        with open(sys.argv[1], "r+b") as file:
            mapped = mmap.mmap(file.fileno(), 4096)
        print("ready", flush=True)
        time.sleep(100)
        """,
        str(board),
    )
    assert procfs.is_same(process.pid, 1.0, mapped=board)
    assert not procfs.is_same(process.pid, 1.0, mapped=tmp_path / "rank-1.board")


def test_another_users_process_is_named_unreadable() -> None:
    needs.root()
    setpriv = needs.program("setpriv")
    process = subprocess.Popen(["sleep", "100"])
    comes_to(process.pid, "S")
    code = (
        "import sys\nfrom hangwatch.wire import codec\nfrom hangwatch_agent.capture.proc.process import process_facts\n"
        f"print(codec.dumps(process_facts({process.pid})))"
    )
    try:
        out = subprocess.run(
            [setpriv, "--reuid", "65534", "--clear-groups", "--inh-caps=-all", sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        ).stdout
    finally:
        process.kill()
        process.wait()
    facts = codec.loads(ProcessFacts, out)
    assert (facts.state, facts.command) == ("S", "sleep 100")
    refused = {what.partition(":")[0] for what in facts.unreadable}
    assert {"system call", "io", "environment", "descriptors"} <= refused
    assert all("denied" in what or "not permitted" in what for what in facts.unreadable)


def test_a_private_lock_and_a_shared_one(script: Script) -> None:
    code = "import threading, multiprocessing as mp\nlock = {}.Lock()\nlock.acquire()\n"
    code += "print('ready', flush=True)\nlock.acquire()"
    private, shared = script(code.format("threading")), script(code.format("mp"))
    assert until(private.pid, lambda facts: facts.deadlocked).private_wait
    facts = until(shared.pid, lambda facts: facts.system_call == "futex")
    assert (facts.system_call, facts.private_wait, facts.deadlocked) == ("futex", False, False)


@pytest.mark.parametrize(("other", "deadlocked"), [("lock.acquire", True), ("lambda: time.sleep(100)", False)])
def test_a_deadlock_takes_all_threads(script: Script, other: str, deadlocked: bool) -> None:
    code = "import threading, time\nlock = threading.Lock()\nlock.acquire()\n"
    code += f"threading.Thread(target={other}, daemon=True).start()\nprint('ready', flush=True)\nlock.acquire()"
    facts = until(script(code).pid, lambda facts: facts.private_wait)
    assert (facts.threads, facts.private_wait, facts.deadlocked) == (2, True, deadlocked)


@pytest.mark.parametrize("made", ["multiprocessing.Queue", "queue.Queue", "threading.Event"])
@pytest.mark.parametrize("timeout", ["70", "None"])
def test_a_wait_with_a_timeout_tells_in_how_long_it_gives_up(script: Script, made: str, timeout: str) -> None:
    wait = "wait" if made.endswith("Event") else "get"
    source = f"import multiprocessing, queue, threading; q = {made}(); print('ready', flush=True)"
    process = script(f"{source}; q.{wait}(timeout={timeout})")
    facts = until(process.pid, lambda facts: facts.system_call in ("poll", "futex", "read", "select"))
    if timeout == "None":
        assert facts.times_out_s is None
    else:
        assert 30 < (facts.times_out_s or 0) <= 70


@pytest.mark.parametrize("handled", [True, False])
def test_an_alarm_may_take_a_process_out_of_its_wait(script: Script, handled: bool) -> None:
    handler = "signal.signal(signal.SIGALRM, lambda *given: None)" if handled else "0"
    process = script(f"import signal, time; {handler}; print('ready', flush=True); time.sleep(100)")
    assert until(process.pid, lambda facts: "sleep" in (facts.system_call or "")).has_alarm is handled


def test_the_child_that_a_launcher_waits_for(script: Script) -> None:
    process = script(
        """
        import subprocess
        first, second = (subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL) for _ in range(2))
        print("ready", flush=True)
        first.wait()
        """
    )
    facts = until(process.pid, lambda facts: facts.waits_for is not None)
    assert facts.waits_for == min(facts.children)


def test_the_kernel_is_asked_once_for_all_processes_that_wait_on_connections(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Mock(side_effect=tcp_counters)
    monkeypatch.setattr(sample, "tcp_counters", kernel)
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"""
            import socket
            connection = socket.create_connection(("127.0.0.1", {server.getsockname()[1]}))
            print("ready", flush=True)
            connection.recv(1)
            """
        pids = [script(code).pid for _ in range(2)]
        for pid in pids:
            until(pid, lambda facts: facts.received_bytes is not None)
        found = sample.take(pids, (), {}, CaptureOptions()).facts
    assert [found[pid].received_bytes for pid in pids] == [0, 0]
    assert kernel.call_count == 1
