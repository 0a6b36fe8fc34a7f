"""Stacks of real processes, and what happens where they are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hangwatch_agent.capture.stacks import by_faulthandler, py_spy
from hangwatch_agent.capture.stacks.py_spy import dump, dump_all, dump_native
from hangwatch_agent.rank.fault_traces import LARGEST
from tests.integration.agent.capture.conftest import PATIENCE_S, Script, comes_to, stop
from tests.integration.agent.capture.refused import AS_NOBODY, WITHOUT_PTRACE, run_refused

WAITS = """
    import threading, time

    class Model:
        def forward(self, secret):
            print("ready", flush=True)
            time.sleep(100)

    threading.Thread(target=lambda: time.sleep(100), name="logger", daemon=True).start()
    Model().forward("hunter2")
    """
REGISTERED = """
    import faulthandler, os, signal, sys, time
    file = open(os.path.join(sys.argv[1], f"stacks-{os.getpid()}.txt"), "w")
    file.write(f"{int(signal.SIGRTMIN) + 5}\\n")
    file.flush()
    faulthandler.register(signal.SIGRTMIN + 5, file=file, all_threads=True)
    if "forget" in sys.argv:
        faulthandler.unregister(signal.SIGRTMIN + 5)

    def step():
        print("ready", flush=True)
        time.sleep(100)

    step()
    """


def test_every_thread_with_its_frames(script: Script) -> None:
    process = script(WAITS)
    taken = dump(process.pid)
    assert taken.failure == ""
    main, logger = taken.stacks
    assert (main.main, main.thread_id, main.name) == (True, process.pid, "MainThread")
    assert [frame.function for frame in main.frames] == ["forward", "<module>"]
    assert main.frames[0].file.endswith("script0.py")
    assert main.frames[0].line == 7
    assert (logger.main, logger.name, logger.owns_gil) == (False, "logger", False)


def test_the_users_local_variables_are_never_kept(script: Script) -> None:
    pid = script(WAITS).pid
    for asked in (False, True):
        taken = dump(pid, with_locals=asked)
        assert (taken.ok, "hunter2" in json.dumps(taken.raw)) == (True, False)


def test_a_stopped_process(script: Script) -> None:
    process = script(WAITS)
    stop(process.pid)
    assert dump(process.pid).stacks[0].frames[0].function == "forward"


def test_a_stopped_process_is_not_paused_for_native_frames(script: Script) -> None:
    process = script(WAITS)
    stop(process.pid)
    assert "is in state T" in dump_native(process.pid).failure


def test_no_process_pauses_itself() -> None:
    assert dump_native(os.getpid()).failure == "not taken: it is the process that asks"


def test_native_frames_stand_among_the_others(script: Script) -> None:
    process = script(WAITS)
    taken = dump_native(process.pid)
    assert taken.failure == ""
    main = taken.stacks[0]
    assert any(frame.native for frame in main.frames)
    assert [frame.function for frame in main.frames if not frame.native] == ["forward", "<module>"]


def test_a_native_dump_that_takes_too_long_leaves_the_process_running(script: Script) -> None:
    process = script("print('ready', flush=True)\nwhile True: pass", rests=False)
    for timeout in (0.001, 0.01, 0.03, 0.06):
        dump_native(process.pid, timeout_s=timeout)
        assert comes_to_run(process.pid)
        time.sleep(0.05)  # a stop that the tracer has left behind would have come by now
        assert comes_to_run(process.pid)


def comes_to_run(pid: int) -> bool:
    """Raises where it does not within the patience: a process may sleep for a moment, but not stay stopped."""
    comes_to(pid, "R")
    return True


def test_memory_of_a_native_dump_is_bounded(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "NATIVE_MEMORY_BYTES", 1 << 20)
    assert dump_native(script(WAITS).pid).failure


def test_a_tracer_that_outlives_its_kill_is_waited_for_and_then_its_process_is_let_go() -> None:
    """In uninterruptible sleep even SIGKILL waits, and the tracer may stop its process before it dies of it."""
    dead, let_go = threading.Event(), threading.Event()

    class Deaf:
        stdout = stderr = None

        def kill(self) -> None:
            pass

        def wait(self, timeout: float | None = None) -> int:
            if timeout is not None:
                raise subprocess.TimeoutExpired("py-spy", timeout)
            dead.wait(60)
            return -9

    py_spy._give_up(Deaf(), let_go.set)  # type: ignore[arg-type]
    assert not let_go.is_set()
    dead.set()
    assert let_go.wait(60)


def test_what_is_not_python_is_gone_or_dead() -> None:
    sleeping = subprocess.Popen(["sleep", "100"])
    zombie = subprocess.Popen(["true"])
    comes_to(zombie.pid, "Z")
    failures = dump_all([sleeping.pid, zombie.pid, 1 << 22])
    sleeping.kill()
    for process in (sleeping, zombie):
        process.wait()
    assert failures[sleeping.pid].failure == "not a Python process, or one that py-spy does not know"
    assert failures[zombie.pid].failure == "the process is a zombie: it has no stacks any more"
    assert failures[1 << 22].failure == "the process is gone"


@pytest.mark.parametrize(
    ("how", "advice"), [(WITHOUT_PTRACE, "CAP_SYS_PTRACE"), (AS_NOBODY, "belongs to user root, we run as nobody")]
)
def test_a_refusal_says_what_is_missing(script: Script, how: tuple[str, ...], advice: str) -> None:
    pid = script(WAITS).pid
    code = f"from hangwatch_agent.capture.stacks.py_spy import dump; print(dump({pid}).failure)"
    answer = run_refused(code, how)
    assert "no right to trace it" in answer
    assert advice in answer or "ptrace_scope" in answer


def test_faulthandler_answers_without_the_right_to_trace(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_faulthandler, "WAIT_S", PATIENCE_S)
    process = script(REGISTERED, str(tmp_path))
    taken = by_faulthandler.ask_faulthandler(process.pid, tmp_path)
    assert taken.failure == ""
    assert [frame.function for frame in taken.stacks[0].frames] == ["step", "<module>"]
    assert (taken.stacks[0].main, taken.stacks[0].source) == (True, "faulthandler")
    again = by_faulthandler.ask_faulthandler(process.pid, tmp_path)
    assert again.stacks == taken.stacks
    assert process.poll() is None


@pytest.mark.parametrize("case", ["never registered", "unregistered", "nonsense"])
def test_a_rank_that_does_not_catch_the_signal_is_not_sent_it(script: Script, tmp_path: Path, case: str) -> None:
    process = script(REGISTERED, str(tmp_path), *(["forget"] if case == "unregistered" else []))
    path = tmp_path / f"stacks-{process.pid}.txt"
    if case == "never registered":
        path.unlink()
    elif case == "nonsense":
        path.write_text("9999999999999999999\n")
    taken = by_faulthandler.ask_faulthandler(process.pid, tmp_path)
    assert not taken.stacks
    assert taken.failure
    assert process.poll() is None


def test_a_stopped_rank_cannot_answer(script: Script, tmp_path: Path) -> None:
    process = script(REGISTERED, str(tmp_path))
    stop(process.pid)
    assert "wrote nothing" in by_faulthandler.ask_faulthandler(process.pid, tmp_path).failure


BUSY = """
    import os, sys, threading, time
    from pathlib import Path
    from hangwatch_agent.rank.fault_traces import FaultTraces

    folder = Path(sys.argv[1])
    traces = FaultTraces(folder)
    traces.install()

    def ticker():
        while True:
            time.sleep(0.01)
            if (folder / "asked").exists():
                (folder / "asked").unlink()
                traces.write()

    def deeper(depth):
        return depth and 1 + deeper(depth - 1)

    def work():
        while True:
            deeper(50)

    for each in (ticker, work, work):
        threading.Thread(target=each, daemon=True).start()
    print("ready", flush=True)
    time.sleep(1000)
    """


def test_a_rank_whose_threads_run_writes_its_stacks_itself_and_is_sent_no_signal(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """faulthandler's own handler crashes such a process within some hundred signals."""
    monkeypatch.setattr(by_faulthandler, "SILENT_S", PATIENCE_S)
    process = script(BUSY, str(tmp_path))
    asked = by_faulthandler.Asked((tmp_path / "asked").touch, lambda: True)
    monkeypatch.setattr("os.kill", lambda pid, number: pytest.fail(f"signal {number}"))
    for _ in range(200):
        taken = by_faulthandler.ask_faulthandler(process.pid, tmp_path, ticker=asked)
        assert taken.failure == ""
        assert {"work", "ticker", "<module>"} <= {each.function for stack in taken.stacks for each in stack.frames}
    assert process.poll() is None
    assert (tmp_path / f"stacks-{process.pid}.txt").stat().st_size < 2 * LARGEST


def test_a_ticker_that_takes_up_nothing_leaves_it_to_the_signal(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot get Python's lock, so that no Python thread moves."""
    monkeypatch.setattr(by_faulthandler, "SILENT_S", 0.1)
    monkeypatch.setattr(by_faulthandler, "WAIT_S", PATIENCE_S)
    process = script(REGISTERED, str(tmp_path))
    asked = []
    ticker = by_faulthandler.Asked(lambda: asked.append(1), lambda: False)
    taken = by_faulthandler.ask_faulthandler(process.pid, tmp_path, ticker=ticker)
    assert (asked, taken.failure, taken.stacks[0].frames[0].function) == ([1], "", "step")


def test_a_ticker_that_is_at_it_is_no_reason_for_a_signal(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_faulthandler, "SILENT_S", 0.1)
    monkeypatch.setattr(by_faulthandler, "WAIT_S", 0.1)
    process = script(REGISTERED, str(tmp_path))
    ticker = by_faulthandler.Asked(lambda: None, lambda: True)
    taken = by_faulthandler.ask_faulthandler(process.pid, tmp_path, ticker=ticker)
    assert (taken.stacks, taken.failure[:26]) == ((), "faulthandler wrote nothing")


def test_a_capture_under_refusal_has_the_stacks_all_the_same(script: Script, tmp_path: Path) -> None:
    process = script(REGISTERED, str(tmp_path))
    code = f"""
import time
from pathlib import Path
from hangwatch.model import Identity, Reading
from hangwatch_agent.capture import CaptureOptions, Target, capture
from hangwatch_agent.capture.stacks import by_faulthandler
from hangwatch_agent.shared import procfs
by_faulthandler.WAIT_S = {PATIENCE_S}
started = procfs.started_at(procfs.stat_of({process.pid}))
reading = Reading(Identity(0, 2, 0, "here", {process.pid}, started, "job"), time.time())
taken = capture([Target(reading, Path({str(tmp_path)!r}) / "rank-0.board")], options=CaptureOptions(sample_gap_s=0.1))
rank, = taken.ranks
print([frame.function for frame in rank.stacks[0].frames], len(rank.earlier_stacks))
print([note.detail for note in taken.notes if note.source == "stacks" and not note.ok])
print(rank.process.unreadable)
"""
    functions, notes, unreadable = run_refused(code).splitlines()
    assert functions == "['step', '<module>'] 1"
    assert "no right to trace it" in notes
    assert "taken by faulthandler instead" in notes
    assert "system call" in unreadable
    assert process.poll() is None


def test_py_spy_is_found_beside_the_interpreter() -> None:
    found = py_spy.find_py_spy()
    assert found is not None
    assert os.access(found, os.X_OK)
    assert found.parent == Path(sys.executable).parent
