"""The board: what the writer writes is what the reader reads, whole, torn, truncated, hostile, forked or killed."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.model import Phase, Reading
from hangwatch_agent.board import layout as b
from hangwatch_agent.board import reader
from hangwatch_agent.board.layout import BoardError
from hangwatch_agent.board.reader import read_board, request_collectives
from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.shared import steady_clock
from tests.forked import in_a_fork

IDENTITY = {
    "rank": 3,
    "world_size": 8,
    "local_rank": 1,
    "host": "node-b",
    "pid": os.getpid(),
    "started_at": 1_700_000_000.5,
    "job": "job-1",
}
GROUPS = [[0, 0, True, "0", "0-7", "default_pg", "gloo"]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / b.board_name(os.getpid(), 77)


@pytest.fixture
def writer(path: Path) -> Iterator[BoardWriter]:
    writer = BoardWriter.create(path, IDENTITY, start_ticks=77)
    writer.write("groups", GROUPS)
    yield writer
    writer.forget()


def issue(writer: BoardWriter, seq: int = 1, op: str = "all_reduce") -> int:
    path = [["/t/distributed_c10d.py", 10, "all_reduce"], ["/home/me/train.py", 67, "main"]]
    site = writer.intern([writer.intern(frame) for frame in path])
    shapes = writer.intern([[[1000, 10]], ["Float"]])
    return writer.call(0, seq, writer.intern(op), shapes, 10_000, b.NONE, b.NONE, site, 5, 1_000_000_000)


def step(writer: BoardWriter, number: int, issued: int = 0) -> None:
    words, entry = writer.words, b.STEPS_AT + number % b.STEPS * b.STEP_WORDS
    words[entry] = 0
    words[entry + b.S_STEP], words[entry + b.S_EPOCH], words[entry + b.S_BATCH] = number, 0, number
    words[entry + b.S_LOADER], words[entry + b.S_AT], words[entry + b.S_END] = 0, number + 1, entry + b.S_ISSUED + 1
    words[entry + b.S_ISSUED] = issued
    words[entry] = words[b.W_STEPS_WRITTEN] = number + 1


def test_a_new_board_identifies_its_rank_and_is_private(writer: BoardWriter, path: Path) -> None:
    reading = read_board(path)
    assert (reading.identity.rank, reading.identity.host) == (3, "node-b")
    assert reading.phase is Phase.START
    assert reading.progress.step == -1
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_phases_are_those_of_the_records() -> None:
    assert tuple(Phase) == b.PHASES
    assert b.PHASES[b.FAILED] == Phase.FAILED
    assert b.PHASES[b.DESTROYING] == Phase.DESTROYING


def test_secrets_of_command_and_environment_are_hidden_from_readers(path: Path) -> None:
    environment = {"TORCHELASTIC_TOKEN": "hunter2", "RANK": "3"}
    identity = IDENTITY | {"command": "train.py --api-key hunter2", "environment": environment}
    BoardWriter.create(path, identity)
    found = read_board(path).identity
    assert "hunter2" not in found.command + str(found.environment)
    assert found.environment["RANK"] == "3"


def test_a_program_in_the_command_line_is_shown_as_one_line(path: Path) -> None:
    writer = BoardWriter.create(path, IDENTITY | {"command": "python -c import os\n\nos.wait()"})
    assert read_board(path).identity.command == "python -c import os os.wait()"
    writer.forget()


def test_the_ring_of_calls(writer: BoardWriter, path: Path) -> None:
    for seq in range(1, 4):
        issue(writer, seq)
    calls = read_board(path).calls
    assert [call.seq for call in calls] == [1, 2, 3]
    call = calls[-1]
    assert (call.group, call.op, call.sizes, call.dtypes, call.step) == (
        "0",
        "all_reduce",
        ((1000, 10),),
        ("Float",),
        5,
    )
    assert [frame.function for frame in call.frames] == ["all_reduce", "main"]
    assert (call.peer, call.tag) == (None, None)
    assert call.at == pytest.approx(steady_clock.ANCHOR_NS / 1e9 + 1.0)


def test_a_call_that_is_newer_than_the_look_at_the_table_is_not_remembered_without_its_path(
    writer: BoardWriter, path: Path
) -> None:
    """GIVEN a reader that knows an older table WHEN a call with a new path comes THEN the path is read with it."""
    with reader.BoardReader(path) as own:
        issue(writer, 1)
        used = writer.words[b.W_TABLE_USED]
        assert own.read().calls[0].frames
        read_table, looks = own._read_table, list[int]()

        def late(given: int) -> None:  # the first look at the table comes before the call is issued
            looks.append(given)
            if len(looks) == 1:
                read_table(used)
                frame = writer.intern(["/home/me/train.py", 99, "save"])
                writer.call(0, 2, writer.intern("barrier"), -1, 0, b.NONE, b.NONE, writer.intern([frame]), 5, 1)
            else:
                read_table(given)

        own._read_table = late  # type: ignore[method-assign, assignment]
        assert [call.seq for call in own.read().calls] == [1]  # the other one was not there when this look began
        newest = own.read().calls[-1]
    assert (newest.op, [frame.line for frame in newest.frames]) == ("barrier", [99])


def test_calls_from_one_place_share_their_frames(writer: BoardWriter, path: Path) -> None:
    issue(writer, 1)
    issue(writer, 2)
    first, second = read_board(path).calls
    assert first.frames is second.frames


def test_the_ring_of_calls_keeps_the_last_ones(writer: BoardWriter, path: Path) -> None:
    for seq in range(1, b.CALLS + 100):
        issue(writer, seq)
        if seq % 500 == 0:
            read_board(path)  # a reader that follows along
    seqs = [call.seq for call in read_board(path).calls]
    assert seqs == list(range(seqs[0], b.CALLS + 100))
    assert len(seqs) >= b.CALLS - 1


def test_only_so_many_as_are_asked_for(writer: BoardWriter, path: Path) -> None:
    for number in range(10):
        issue(writer, number + 1)
        step(writer, number)
    reading = read_board(path, steps=0, calls=2)
    assert [call.seq for call in reading.calls] == [9, 10]
    assert reading.steps == ()
    assert reading.progress.step == 9


def test_an_entry_that_is_being_written_is_left_out(writer: BoardWriter, path: Path) -> None:
    for seq in (1, 2, 3):
        issue(writer, seq)
    writer.words[b.CALLS_AT + b.CALL_WORDS] = 0
    assert [call.seq for call in read_board(path).calls] == [1, 3]


def test_a_call_is_open_until_it_is_left(writer: BoardWriter, path: Path) -> None:
    token = writer.enter(issue(writer), 5)
    (call,) = read_board(path).open_calls
    assert (call.seq, call.thread_name) == (1, "MainThread")
    writer.leave(token)
    assert read_board(path).open_calls == ()


def test_more_threads_than_slots(writer: BoardWriter, path: Path) -> None:
    import threading

    def enter_and_leave() -> None:
        writer.leave(writer.enter(issue(writer), 5))

    for _ in range(b.THREAD_SLOTS * 2):
        thread = threading.Thread(target=enter_and_leave)
        thread.start()
        thread.join()
    token = writer.enter(issue(writer, 99), 5)
    assert [call.seq for call in read_board(path).open_calls] == [99]
    writer.leave(token)


def test_the_step_ledger_wraps_around(writer: BoardWriter, path: Path) -> None:
    for number in range(b.STEPS + 40):
        step(writer, number, issued=3 * number)
    reading = read_board(path)
    assert reading.progress.step == reading.steps[-1].step == b.STEPS + 39
    assert reading.steps[-1].issued == {"0": 3 * (b.STEPS + 39)}
    assert len(reading.steps) >= b.STEPS - 1


def test_a_group_that_reuses_a_slot_is_not_in_older_entries(writer: BoardWriter, path: Path) -> None:
    step(writer, 0, issued=5)
    writer.write("groups", [[0, 1, True, "7", "0,2", "", "gloo"]])
    step(writer, 1, issued=2)
    assert [entry.issued for entry in read_board(path).steps] == [{}, {"7": 2}]


def test_members_in_group_order(writer: BoardWriter, path: Path) -> None:
    writer.write("groups", [[0, 0, True, "1", "4,0-2", "", "gloo"], [1, 0, False, "2", "0-1", "", "gloo"]])
    (head,) = read_board(path).heads
    assert (head.members, head.issued, head.completed) == ((4, 0, 1, 2), -1, -1)


def test_a_blob_that_does_not_fit_is_refused(writer: BoardWriter, path: Path) -> None:
    with pytest.raises(ValueError, match="takes 9002 bytes"):
        writer.write("identity", "x" * 9000)
    assert read_board(path).identity.rank == 3


def test_a_writer_killed_while_writing_a_blob_leaves_the_one_before(writer: BoardWriter, path: Path) -> None:
    word, start, capacity = b.blob_places()["identity"]
    half = writer.words[word] % 2  # the half that is written next
    writer.bytes[start + half * capacity : start + half * capacity + 3] = b"{{{"
    writer.words[word + 1 + 2 * half] = 3
    assert read_board(path).identity.rank == 3


def test_problems_are_counted(writer: BoardWriter, path: Path) -> None:
    for _ in range(5):
        writer.problem("no flight recorder")
    assert read_board(path).problems == ("no flight recorder (4 times)",)


def test_many_problems_do_not_overflow(writer: BoardWriter, path: Path) -> None:
    for number in range(200):
        writer.problem(f"problem {number} " + "ä" * 280)
    assert read_board(path).problems


def test_a_full_table_is_named_and_sizes_fall_back_to_elements(writer: BoardWriter, path: Path) -> None:
    while writer.intern("x" * 500 + str(writer.table_free)) >= 0:
        pass
    writer.call(0, 1, -1, writer.intern([[[7]], ["Float"]]), 7, b.NONE, b.NONE, -1, b.NONE, 1)
    reading = read_board(path)
    assert reading.calls[-1].sizes == ((7,),)
    assert any("table is full" in problem for problem in reading.problems)


# ---------------------------------------------------------------- asking for collectives


def test_every_request_is_a_new_one(writer: BoardWriter, path: Path) -> None:
    request_collectives(path, os.getpid())
    request_collectives(path, os.getpid())
    assert writer.words[b.W_REQUEST] == 2


def test_a_request_to_another_process_is_refused(writer: BoardWriter, path: Path) -> None:
    with pytest.raises(BoardError, match="not of 1"):
        request_collectives(path, 1)


# ---------------------------------------------------------------- what is no board


def test_what_is_no_board_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rank-1-1.board"
    path.write_bytes(b"x" * b.SIZE)
    with pytest.raises(BoardError, match="not a board"):
        read_board(path)
    path.write_bytes(b"")
    with pytest.raises(BoardError, match="not a board"):
        read_board(path)
    with pytest.raises(BoardError, match="no regular file"):
        read_board(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_board(tmp_path / "none")


def test_a_board_of_another_version_says_so(writer: BoardWriter, path: Path) -> None:
    writer.words[b.W_VERSION] = 9
    with pytest.raises(BoardError, match=r"version 9; this hangwatch reads version 5"):
        read_board(path)


@pytest.mark.parametrize("size", [8, 30, 1000, b.STEPS_AT * 8, b.SIZE - 1])
def test_a_truncated_board_says_so(writer: BoardWriter, path: Path, size: int) -> None:
    read_board(path)
    whole = path.read_bytes()
    short = path.with_name("rank-2-2.board")
    short.write_bytes(whole[:size])
    with pytest.raises(BoardError, match=r"truncated|not a board"):
        read_board(short)


def test_a_board_cut_off_under_its_reader(writer: BoardWriter, path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "rank-2-2.board"
    copy.write_bytes(path.read_bytes())
    with reader.BoardReader(copy) as reading:
        assert reading.read().identity.rank == 3
        os.truncate(copy, 4096)
        with pytest.raises(BoardError, match="truncated"):
            reading.read()


def test_a_board_deleted_under_our_feet_is_still_read(writer: BoardWriter, path: Path) -> None:
    read_board(path)
    path.unlink()
    step(writer, 0)
    assert read_board(path).progress.step == 0


def test_a_board_made_anew_is_read_anew(writer: BoardWriter, path: Path) -> None:
    read_board(path)
    BoardWriter.create(path, IDENTITY | {"rank": 5})
    assert read_board(path).identity.rank == 5


def test_a_symbolic_link_is_not_followed(writer: BoardWriter, path: Path, tmp_path: Path) -> None:
    link = tmp_path / "rank-9-9.board"
    link.symlink_to(path)
    with pytest.raises(OSError, match=r"symbolic links|loop"):
        read_board(link)


def test_what_an_exception_says_is_redacted_where_it_is_read(tmp_path: Path) -> None:
    writer = BoardWriter.create(tmp_path / "rank-1-1.board", IDENTITY)
    message = "403 for https://store/x?sig=geheim: password=geheim refused"
    writer.write("exception", {"type": "OSError", "message": message, "frames": []})
    writer.problem("no login with --token geheim")
    found = read_board(tmp_path / "rank-1-1.board")
    writer.forget()
    assert found.exception is not None
    assert found.exception.message == "403 for https://store/x?sig=[redacted] password=[redacted] refused"
    assert found.problems == ("no login with --token [redacted]",)


def busy(path: Path) -> bytes:
    writer = BoardWriter.create(path, IDENTITY)
    writer.write("groups", GROUPS)
    writer.write(
        "loaders", [{"index": 0, "length": 9, "drawn_per_epoch": [9, 8], "exhausted_per_epoch": [True, False]}]
    )
    writer.write(
        "exception", {"type": "ValueError", "message": "m", "frames": [{"file": "f", "line": 1, "function": "g"}]}
    )
    writer.write("groups_made", [[0, "0-7", "0", True, ["f", 1, "g"]]])
    writer.problem("p")
    for number in range(20):
        step(writer, number)
        writer.enter(issue(writer, number + 1), 5)
    data = path.read_bytes()
    writer.forget()
    return data


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return busy(tmp_path_factory.mktemp("good") / "rank-1-1.board")


FRONT = st.integers(3 * 8, b.STEPS_AT * 8 - 1)
ANYWHERE = st.integers(0, b.SIZE - 1)
FLIPS = st.lists(st.tuples(st.one_of(FRONT, ANYWHERE), st.binary(min_size=1, max_size=9)), min_size=1, max_size=40)


@pytest.mark.untraced
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(flips=FLIPS)
def test_a_spoiled_board_gives_a_reading_or_a_board_error(
    good: bytes, tmp_path: Path, flips: list[tuple[int, bytes]]
) -> None:
    data = bytearray(good)
    for at, spoil in flips:
        data[at : at + len(spoil)] = spoil
    assert kinds_read(tmp_path / "rank-1-1.board", bytes(data[: b.SIZE])) <= {Reading, BoardError}


WORDS = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-3, 3000), st.sampled_from([1 << 62, -(1 << 62)]))
HOSTILE = st.lists(st.tuples(st.integers(3, b.STEPS_AT - 1), WORDS), min_size=1, max_size=60)


@pytest.mark.untraced
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(words=HOSTILE)
def test_hostile_words(good: bytes, tmp_path: Path, words: list[tuple[int, int]]) -> None:
    data = bytearray(good)
    for index, word in words:
        data[index * 8 : index * 8 + 8] = word.to_bytes(8, sys.byteorder, signed=True)
    assert kinds_read(tmp_path / "rank-1-1.board", bytes(data)) <= {Reading, BoardError}


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=12), inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.untraced
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(name=st.sampled_from(list(b.BLOBS)), value=JSON, line=JSON)
def test_hostile_blobs_with_right_checksums(tmp_path: Path, name: str, value: Any, line: Any) -> None:
    path = tmp_path / "rank-1-1.board"
    writer = BoardWriter.create(path, IDENTITY)
    writer.write("groups", GROUPS)
    writer.write(name, value)
    number = writer.intern(line)
    writer.call(0, 1, number, number, 3, 0, 0, number, 0, 1)
    assert kinds_read(path, None) <= {Reading, BoardError}
    writer.forget()


def kinds_read(path: Path, data: bytes | None) -> set[type]:
    """What two looks at a board give, readings or errors; every reading survives the wire."""
    from hangwatch.wire import codec

    found: set[type] = set()
    if data is not None:
        path.write_bytes(data)
    with reader.BoardReader(path) as opened:
        for _ in range(2):  # the second time from what is remembered
            try:
                reading = opened.read()
            except BoardError:
                found.add(BoardError)
                continue
            found.add(type(reading))
            assert codec.decode(Reading, codec.encode(reading)) == reading
            codec.dumps(reading)
    return found


# ---------------------------------------------------------------- forks, kills, full disks


def test_a_forked_child_does_not_write_its_parents_board(writer: BoardWriter, path: Path) -> None:
    def forked() -> None:
        writer.forget()  # what the probe does after a fork
        step(writer, 0)
        issue(writer)
        writer.problem("child")

    assert in_a_fork(forked) == 0
    reading = read_board(path)
    assert (reading.progress.step, reading.calls, reading.problems) == (-1, (), ())


KILLED = """
import os, signal, sys
from pathlib import Path
from hangwatch_agent.board.writer import BoardWriter
writer = BoardWriter.create(Path(sys.argv[1]), {**%r, "pid": os.getpid()})
number = 0
print("ready", flush=True)
while True:
    number += 1
    token = writer.enter(writer.call(-1, number, writer.intern("all_reduce"), -1, 1, 0, 0, -1, 0, 1), 1)
    writer.write("problems", [str(number)] * (number %% 50))
    writer.leave(token)
"""


def test_a_board_survives_sigkill_at_any_moment(path: Path) -> None:
    for _ in range(3):
        command = [sys.executable, "-c", KILLED % IDENTITY, str(path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while len(read_board(path).calls) < 100:  # reading while it is written
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        reading = read_board(path)
        seqs = [call.seq for call in reading.calls]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert not any("torn" in problem for problem in reading.problems)


def test_a_full_disk_is_an_error_at_creation(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        BoardWriter.create(path, IDENTITY)
    assert list(path.parent.iterdir()) == []


def test_two_threads_that_write_one_blob_do_not_spoil_it(writer: BoardWriter, path: Path) -> None:
    import threading

    def write(name: str) -> None:
        for number in range(300):
            writer.write("identity", IDENTITY | {"command": f"{name} {number} " + "x" * (number % 90)})
            writer.intern(f"{name} {number}")

    threads = [threading.Thread(target=write, args=(f"thread {number}",)) for number in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    with reader.BoardReader(path) as opened:
        assert opened.read().problems == ()
        assert all(isinstance(line, str) and line.startswith("thread ") for line in opened._lines)


def open_in(folder: Path) -> list[str]:
    """The files of a folder that this process has open; threads of other tests may open and close their own."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [name for name in found if name.startswith(f"{folder}/")]


def test_a_board_holds_no_descriptor(path: Path) -> None:
    """A program may close those that it does not know, and open files of its own with the same numbers."""
    with path.with_name("seen").open("w"):
        assert open_in(path.parent) == [str(path.with_name("seen"))]
    writer = BoardWriter.create(path, IDENTITY)
    assert open_in(path.parent) == []
    writer.forget()
    assert open_in(path.parent) == []


def test_the_memory_of_a_board_is_given_back_when_no_hook_uses_it_any_more(path: Path) -> None:
    def mapped() -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    writer = BoardWriter.create(path, IDENTITY)
    in_use = writer.words
    writer.forget()
    in_use[b.W_TICKS] = 5  # a hook in another thread
    assert mapped()
    del in_use
    assert not mapped()
