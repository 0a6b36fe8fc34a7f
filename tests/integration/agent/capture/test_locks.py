"""Processes that really wait for a lock: of the kernel, of torch, of the filelock package."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from hangwatch.model import ExceptionFacts, LockFile
from hangwatch_agent.capture.proc.lock_owners import Owners
from hangwatch_agent.capture.proc.locks import left_behind, lock_files, polls_a_lock
from hangwatch_agent.capture.proc.process import process_facts
from hangwatch_agent.capture.proc.tree import Member
from hangwatch_agent.capture.stacks.py_spy import dump
from hangwatch_agent.shared.procfs import Table
from tests.integration.agent.capture.conftest import Script

T = TypeVar("T")

FLOCK = """
    import fcntl, sys, time
    file = open(sys.argv[1], "w")
    if sys.argv[2] == "waits":
        print("ready", flush=True)
    fcntl.{call}(file, fcntl.LOCK_EX)
    print("ready", flush=True)
    time.sleep(100)
    """
FILELOCK = """
    import sys, time, filelock
    lock = filelock.{kind}(sys.argv[1])
    if sys.argv[2] == "waits":
        print("ready", flush=True)
    with lock:
        print("ready", flush=True)
        time.sleep(100)
    """


CLOSED = """
    import fcntl, subprocess, sys, time
    file = open(sys.argv[1], "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    child = subprocess.Popen(["sleep", "100"], pass_fds=[file.fileno()])
    file.close()
    print("ready", flush=True)
    try:
        time.sleep(100)
    finally:
        child.kill()
    """


DATABASE = """
    import sqlite3, sys, time
    book = sqlite3.connect(sys.argv[1], timeout=100, isolation_level=None)
    book.execute(f"pragma journal_mode={sys.argv[3]}")
    if sys.argv[2] == "waits":
        print("ready", flush=True)
    book.execute("begin immediate")
    print("ready", flush=True)
    time.sleep(float(sys.argv[2]))
    """


def eventually(look: Callable[[], T]) -> T:
    """What a look gives as soon as it gives anything, or after a minute."""
    deadline = time.monotonic() + 60
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def locks_of(pid: int) -> tuple[LockFile, ...]:
    return eventually(lambda: lock_files(process_facts(pid), dump(pid, with_locals=True)))


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_a_kernel_lock_and_its_owner(script: Script, tmp_path: Path, call: str) -> None:
    path = tmp_path / "train.lock"
    owner = script(FLOCK.format(call=call), str(path), "holds")
    waits = script(FLOCK.format(call=call), str(path), "waits")
    (lock,) = locks_of(waits.pid)
    assert (lock.path, lock.owner_pid, lock.owner_alive) == (str(path), owner.pid, True)
    assert 0 <= lock.age_s < 60


IN_A_THREAD = """
    import fcntl, queue, sys, threading
    found = queue.Queue()

    def read():
        with open(sys.argv[1], "w") as file:
            print("ready", flush=True)
            fcntl.{call}(file, fcntl.LOCK_EX)
            found.put(1)

    threading.Thread(target=read, daemon=True).start()
    found.get()
    """


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_a_kernel_lock_that_a_thread_waits_for_while_the_main_one_waits_for_the_thread(
    script: Script, tmp_path: Path, call: str
) -> None:
    path = tmp_path / "index.lock"
    owner = script(FLOCK.format(call=call), str(path), "holds")
    waits = script(IN_A_THREAD.format(call=call), str(path))
    (lock,) = locks_of(waits.pid)
    assert (lock.path, lock.owner_pid, lock.owner_alive) == (str(path), owner.pid, True)
    threads = dump(waits.pid).stacks
    (reader,) = (each for each in threads if not each.main and any(frame.function == "read" for frame in each.frames))
    assert lock.thread == reader.thread_id


OF_ANOTHER_THREAD = """
    import fcntl, sys, threading, time
    taken = threading.Event()

    def hold():
        file = open(sys.argv[1], "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        taken.set()
        time.sleep(100)

    threading.Thread(target=hold, daemon=True).start()
    taken.wait()
    print("ready", flush=True)
    fcntl.flock(open(sys.argv[1], "w"), fcntl.LOCK_EX)
    """


def test_a_process_waits_for_a_lock_that_another_thread_of_it_holds(script: Script, tmp_path: Path) -> None:
    """A flock belongs to an open file: the same process, which has opened it twice, waits for itself."""
    path = tmp_path / "train.lock"
    waits = script(OF_ANOTHER_THREAD, str(path))
    (lock,) = locks_of(waits.pid)
    assert (lock.path, lock.owner_pid, lock.owner_alive) == (str(path), waits.pid, True)


INHERITED = """
    import fcntl, os, subprocess, sys, time
    file = open(sys.argv[1], "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], pass_fds=(file.fileno(),))
    print("ready", flush=True)
    time.sleep(float(sys.argv[2]))
    """


def test_a_lock_is_held_by_the_child_that_inherited_it(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "train.lock"
    owner = script(INHERITED, str(path), "100")
    (child,) = eventually(lambda: Table.read().children(owner.pid))
    try:
        waits = script(FLOCK.format(call="flock"), str(path), "waits")
        assert locks_of(waits.pid)[0].owner_pid == owner.pid
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        (lock,) = locks_of(waits.pid)
        assert (lock.owner_pid, lock.owner_alive) == (child, True)
    finally:
        os.kill(child, signal.SIGKILL)


OWN = """
    import os, sys, time
    print("ready", flush=True)
    while True:
        try:
            os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            time.sleep(1.5)
    """


@pytest.mark.parametrize("text", ["{dead}\n", "{alive}", "host-7", ""])
def test_a_lock_file_of_the_programs_own_whose_maker_is_dead(script: Script, tmp_path: Path, text: str) -> None:
    """GIVEN a process that naps between its tries to make a file
    THEN the file is a lock left behind, if its text is the pid of a dead process; of a living one nothing is known."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    path = tmp_path / "tokens.lock"
    path.write_text(text.format(dead=dead.pid, alive=os.getpid()))
    waits = script(OWN, str(path))
    error = ExceptionFacts("FileExistsError", f"[Errno 17] File exists: '{path}'", ())
    assert eventually(lambda: process_facts(waits.pid).sleeps_s)
    found = left_behind(process_facts(waits.pid), error)
    expected = [(str(path), dead.pid, False)] if "dead" in text else []
    assert [(lock.path, lock.owner_pid, lock.owner_alive) for lock in found] == expected
    assert left_behind(process_facts(waits.pid), None) == ()


def test_a_named_pipe_in_the_way_is_not_opened_to_wait_for_a_writer(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "tokens.lock"
    os.mkfifo(path)
    waits = script(OWN, str(path))
    error = ExceptionFacts("FileExistsError", f"[Errno 17] File exists: '{path}'", ())
    assert eventually(lambda: process_facts(waits.pid).sleeps_s)
    assert left_behind(process_facts(waits.pid), error) == ()


def test_a_process_that_has_closed_the_locked_file_holds_nothing(script: Script, tmp_path: Path) -> None:
    """/proc/locks names the process that took the lock for as long as any process has that open file."""
    path = tmp_path / "train.lock"
    owner = script(CLOSED, str(path))
    (child,) = eventually(lambda: Table.read().children(owner.pid))
    waits = script(FLOCK.format(call="flock"), str(path), "waits")
    assert locks_of(waits.pid)[0].owner_pid == child


def test_what_the_holder_is_to_the_job(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "train.lock"
    owner = script(FLOCK.format(call="flock"), str(path), "holds", env={**os.environ, "RANK": "5"})
    waits = script(FLOCK.format(call="flock"), str(path), "waits")
    (lock,) = locks_of(waits.pid)
    assert lock.filesystem
    whole = Table.read()

    def role(
        ranks: dict[int, int | None], members: dict[int, Member], parent: int = os.getpid()
    ) -> tuple[str, int | None]:
        stat = replace(whole.stats[owner.pid], parent=parent)
        table = replace(whole, stats={**whole.stats, owner.pid: stat})
        found = Owners(ranks, members, table, table).known(lock).owner
        assert found is not None
        assert found.pid == owner.pid
        assert found.cpu_delta_s == 0.0
        assert str(path) in found.command
        return found.role, found.rank

    assert role({}, {}) == ("orphan", None), "hangwatch run takes in what its command leaves behind"
    assert role({}, {}, parent=4_000_000) == ("stranger", None)
    assert role({}, {}, parent=1) == ("leftover", None), "it was a rank, and its launcher is gone"
    assert role({owner.pid: 3}, {}) == ("rank", 3)
    assert role({}, {owner.pid: Member(owner.pid, "child", 1)}) == ("child", 1)


def test_what_the_holder_has_started_works_for_it_unless_that_is_a_rank(script: Script, tmp_path: Path) -> None:
    """A build that holds a lock waits for its compiler; of a launcher that holds one, the ranks are not its work."""
    path = tmp_path / "train.lock"
    owner = script(CLOSED, str(path))
    (child,) = eventually(lambda: Table.read().children(owner.pid))
    lock = LockFile(str(path), owner.pid, owner_alive=True, age_s=1.0)
    before = Table.read()
    used = replace(before.stats[child], cpu_s=before.stats[child].cpu_s + 0.7)
    after = replace(before, stats={**before.stats, child: used})

    def cpu_delta_s(ranks: dict[int, int | None]) -> float | None:
        found = Owners(ranks, {}, before, after).known(lock).owner
        assert found is not None
        return found.cpu_delta_s

    assert cpu_delta_s({}) == pytest.approx(0.7)
    assert cpu_delta_s({child: 0}) == 0.0


def test_a_lock_without_a_known_holder_is_left_as_it_is() -> None:
    lock = LockFile("/data/lock", None, owner_alive=True, age_s=1.0)
    assert Owners({}, {}, Table({}), Table({})).known(lock) == lock


@pytest.mark.parametrize(("journal", "locked"), [("delete", "runs.db"), ("wal", "runs.db-shm")])
def test_a_database_polls(script: Script, tmp_path: Path, journal: str, locked: str) -> None:
    """With a write-ahead log all users of a database have locks of its files, which keep none of them from writing."""
    path = tmp_path / "runs.db"
    owner = script(DATABASE, str(path), "100", journal)
    waits = script(DATABASE, str(path), "waits", journal, rests=False)
    # Between two naps it tries the lock: on a busy machine a look can fall just then.
    (lock,) = eventually(lambda: lock_files(process_facts(waits.pid)))
    assert (Path(lock.path).name, lock.owner_pid, lock.owner_alive, lock.inferred) == (locked, owner.pid, True, True)
    assert lock_files(process_facts(owner.pid)) == (), "it holds the lock itself, and sleeps for long"


def test_a_sleep_with_an_open_file_that_is_not_locked_is_no_wait_for_a_lock(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    nap = (
        "import sqlite3, sys, time\nbook = sqlite3.connect(sys.argv[1])\nprint('ready', flush=True)\ntime.sleep(1.5)\n"
        * 40
    )
    waits = script(nap, str(path), rests=False)
    assert eventually(lambda: 0 < (process_facts(waits.pid).sleeps_s or 0) <= 2)
    assert lock_files(process_facts(waits.pid)) == ()


def test_who_inherited_the_locked_file_does_not_wait_for_it(script: Script, tmp_path: Path) -> None:
    """`flock FILE command`: the command has the file open, and sleeps for other reasons."""
    naps = "print('ready', flush=True)\nimport time\nwhile True:\n    time.sleep(1.5)\n"
    with (tmp_path / "job.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        child = script(naps, rests=False, pass_fds=(held.fileno(),))
        assert eventually(lambda: 0 < (process_facts(child.pid).sleeps_s or 0) <= 2)
        assert lock_files(process_facts(child.pid)) == ()


@pytest.mark.parametrize("kind", ["FileLock", "SoftFileLock"])
def test_filelock_polls(script: Script, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data set.lock"
    owner = script(FILELOCK.format(kind=kind), str(path), "holds")
    waits = script(FILELOCK.format(kind=kind), str(path), "waits", rests=False)
    # Between two naps it tries the lock: on a busy machine a look can fall just then.
    assert eventually(lambda: polls_a_lock(dump(waits.pid).stacks))
    (lock,) = locks_of(waits.pid)
    assert (lock.path, lock.owner_alive) == (str(path), True)
    assert lock.owner_pid in (owner.pid, None)


def extension(folder: Path) -> str:
    """A rank that builds an extension as torch does, with torch's own baton: only the caller's file is a stand-in."""
    path = folder / "torch/utils/cpp_extension.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "import os\n"
        "from torch.utils.file_baton import FileBaton\n"
        "def _jit_compile(build_directory):\n"
        "    baton = FileBaton(os.path.join(build_directory, 'lock'))\n"
        "    if not baton.try_acquire():\n"
        "        print('ready', flush=True)\n"
        "        baton.wait()\n"
        "    print('ready', flush=True)\n"
        "    import time; time.sleep(100)\n"
    )
    return f"""
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("extension", {str(path)!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module._jit_compile(sys.argv[1])
        """


def test_torchs_file_baton_whose_owner_is_dead(script: Script, tmp_path: Path) -> None:
    code, build = extension(tmp_path / "lib"), tmp_path / "build"
    build.mkdir()
    owner = script(code, str(build))
    waits = script(code, str(build), rests=False)
    (lock,) = locks_of(waits.pid)
    assert (lock.path, lock.owner_pid, lock.owner_alive) == (f"{build}/lock", owner.pid, True)
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    (lock,) = locks_of(waits.pid)
    assert (lock.path, lock.owner_pid, lock.owner_alive) == (f"{build}/lock", None, False)


def test_a_path_too_long_for_py_spy(script: Script, tmp_path: Path) -> None:
    path = tmp_path / ("x" * 200) / ("y" * 100)
    path.parent.mkdir()
    script(FILELOCK.format(kind="FileLock"), str(path), "holds")
    waits = script(FILELOCK.format(kind="FileLock"), str(path), "waits", rests=False)
    (lock,) = locks_of(waits.pid)
    assert lock.path == str(path)


def test_a_lock_that_has_been_deleted_meanwhile(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "gone.lock"
    script(FLOCK.format(call="flock"), str(path), "holds")
    waits = script(FLOCK.format(call="flock"), str(path), "waits")
    assert locks_of(waits.pid)
    path.unlink()
    (lock,) = locks_of(waits.pid)
    assert lock.owner_pid is None
