"""The lines of code around the places where ranks stand."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from hangwatch.model import (
    Collective,
    Collectives,
    ExceptionFacts,
    Frame,
    LoaderFacts,
    ProcessEvidence,
    ProcessFacts,
    RankEvidence,
    ThreadStack,
)
from hangwatch.stacks.frames import stacks_of_trace
from hangwatch_agent.capture.source import excerpts, files, lines
from hangwatch_agent.capture.source.files import Source, Sources
from tests.unit.agent.readings import reading

NO_PROC = Path("/nonexistent")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A file of twenty lines, written long ago."""
    path = tmp_path / "train.py"
    path.write_text("".join(f"line {number}\n" for number in range(1, 21)))
    os.utime(path, (1000.0, 1000.0))
    return path


def stack(path: Path, line: int, *, main: bool = True) -> ThreadStack:
    library = Frame("/usr/lib/python3.12/threading.py", 355, "wait")
    return ThreadStack(
        1, "MainThread", (library, Frame(str(path), line, "train"), Frame(str(path), 20, "main")), main=main
    )


def rank(number: int, *stacks: ThreadStack, state: str = "S") -> RankEvidence:
    facts = ProcessFacts(100 + number, state)
    return RankEvidence(number, pid=100 + number, reading=reading(number), stacks=stacks, process=facts)


def test_the_line_is_taken_with_three_before_and_three_after(script: Path) -> None:
    (found,) = excerpts.excerpts([rank(0, stack(script, 10))], (), Sources(), NO_PROC)
    assert (found.file, found.line, found.first) == (str(script), 10, 7)
    assert found.lines == tuple(f"line {number}" for number in range(7, 14))


@pytest.mark.parametrize(("line", "first", "last"), [(1, 1, 4), (2, 1, 5), (20, 17, 20)])
def test_less_is_taken_at_the_ends_of_a_file(line: int, first: int, last: int) -> None:
    text = "\n".join(f"line {number}" for number in range(1, 21))
    found = excerpts.excerpt(Source(text, 0.0), Frame("/a.py", line, "f"))
    assert found is not None
    assert (found.first, found.lines[-1]) == (first, f"line {last}")
    assert excerpts.excerpt(Source(text, 0.0), Frame("/a.py", 21, "f")) is None
    assert excerpts.excerpt(Source(text, 0.0), Frame("/a.py", 0, "f")) is None


def test_empty_lines_at_the_end_are_left_out() -> None:
    found = excerpts.excerpt(Source("a\n\n\n  \n", 0.0), Frame("/a.py", 2, "f"))
    assert found is not None
    assert (found.first, found.lines) == (1, ("a", ""))


def test_ranks_at_one_line_share_an_excerpt_and_main_threads_come_first(script: Path) -> None:
    ranks = [rank(each, stack(script, 10), stack(script, 3, main=False)) for each in range(8)]
    found = excerpts.excerpts([*ranks, rank(8, stack(script, 15))], (), Sources(), NO_PROC)
    assert [each.line for each in found] == [10, 15, 3]


def test_a_node_takes_a_bounded_number(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("x\n" * 1000)
    found = excerpts.excerpts([rank(each, stack(path, each + 1)) for each in range(500)], (), Sources(), NO_PROC)
    assert len(found) == excerpts.MOST


def test_every_place_that_a_verdict_may_name_is_taken(script: Path) -> None:
    # GIVEN a rank whose evidence names a line in each of its parts, and a worker, and an orphan
    def at(line: int) -> tuple[Frame, ...]:
        return (Frame(str(script), line, "f"),)

    told = reading(
        exception=ExceptionFacts("ValueError", "", at(1)),
        loaders=(LoaderFacts(0, None, where=at(2)[0]),),
    )
    worker, orphan = (
        ProcessEvidence(role, ProcessFacts(7, "S"), (ThreadStack(1, "", at(line), main=True),))
        for role, line in (("loader-worker", 3), ("orphan", 4))
    )
    calls = Collectives(open_calls=(Collective("0", 1, "all_reduce", frames=at(5)),))
    everything = RankEvidence(0, reading=told, workers=(worker,), collectives=calls)
    # WHEN and THEN
    found = excerpts.excerpts([everything], [orphan], Sources(), NO_PROC)
    assert sorted(each.line for each in found) == [1, 2, 3, 4, 5]


def test_the_stack_that_a_crash_has_left_counts(script: Path) -> None:
    head = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):"
    trace = f'{head}\n  File "{script}", line 9 in train\n'
    dead = RankEvidence(0, pid=1, process=ProcessFacts(1, "X"), stacks=stacks_of_trace(trace))
    assert [each.line for each in excerpts.excerpts([dead], (), Sources(), NO_PROC)] == [9]


def test_secrets_go_and_long_lines_are_cut() -> None:
    text = 'login(token="hf_abcdefghijklmnopqrstuvwx")\n' + "x" * 5000 + "\n\tthird  "
    found = excerpts.excerpt(Source(text, 0.0), Frame("/a.py", 2, "f"))
    assert found is not None
    assert found.lines[0] == 'login(token="[redacted]")'
    assert len(found.lines[1]) == lines.LONGEST_LINE
    assert found.lines[1].endswith("xxx ...")
    assert found.lines[2] == "\tthird"


def test_lines_are_counted_as_python_counts_them() -> None:
    found = excerpts.excerpt(Source("a\x0cb\u2028c\nd", 0.0), Frame("/a.py", 2, "f"))
    assert found is not None
    assert found.lines == ("a\x0cb\u2028c", "d")


def test_a_file_written_after_the_start_is_marked(script: Path) -> None:
    found = excerpts.excerpt(Source("a", 500.0), Frame("/a.py", 1, "f"), started_at=100.0)
    assert found is not None
    assert found.changed
    for written_at, started_at in ((99.0, 100.0), (101.0, 100.0), (500.0, 0.0)):
        same = excerpts.excerpt(Source("a", written_at), Frame("/a.py", 1, "f"), started_at=started_at)
        assert same is not None
        assert not same.changed


@pytest.mark.parametrize("name", ["/etc/passwd", "train.py", "<string>", "libtorch.so"])
def test_only_python_files_by_their_whole_path_are_read(name: str) -> None:
    asked = Sources()
    stood = ThreadStack(1, "", (Frame(name, 1, "f"),), main=True)
    assert excerpts.excerpts([rank(0, stood)], (), asked, NO_PROC) == ()
    assert asked == Sources()


def test_a_rank_in_another_mount_namespace_has_its_files_below_its_root(tmp_path: Path) -> None:
    inside = tmp_path / "100" / "root" / "code"
    inside.mkdir(parents=True)
    (inside / "inside-only.py").write_text("here\n")
    place = Path("/code/inside-only.py")
    (found,) = excerpts.excerpts([rank(0, stack(place, 1))], (), Sources(), tmp_path)
    assert found.lines == ("here",)
    # Of a dead rank, its pid may be another process's by now.
    assert excerpts.excerpts([rank(0, stack(place, 1), state="X")], (), Sources(), tmp_path) == ()


def test_what_is_no_regular_file_of_sane_size_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo, large, folder = tmp_path / "fifo.py", tmp_path / "large.py", tmp_path / "folder.py"
    os.mkfifo(fifo)
    large.write_text("x" * 100)
    folder.mkdir()
    monkeypatch.setattr(files, "LARGEST_SOURCE", 99)
    began = time.process_time()
    assert [files.read(str(path)) for path in (fifo, large, folder, tmp_path / "none.py")] == [None] * 4
    assert files.read("/dev/zero") is None
    assert files.read("a\0b.py") is None
    assert time.process_time() - began < 1.0  # and a read that blocks would never return


def test_a_file_is_read_once_and_any_encoding_will_do(tmp_path: Path) -> None:
    path, asked = tmp_path / "latin.py", Sources()
    path.write_bytes("# naïve\r\nx = 1\r\n".encode("latin-1"))
    first = asked.of(str(path))
    path.unlink()
    assert first is not None
    assert first.text == "# na\ufffdve\nx = 1\n"
    assert asked.of(str(path)) is first


def test_a_file_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a file whose reading does not end
    held, tried = threading.Event(), list[str]()

    def hangs(file: str) -> None:
        tried.append(file)
        held.wait(60)

    monkeypatch.setattr(files, "read", hangs)
    asked = Sources(patience_s=0.05)
    # WHEN several files are asked for
    assert [asked.of(name) for name in ("/a.py", "/b.py", "/a.py")] == [None] * 3
    held.set()
    # THEN one attempt is all the time that is lost
    assert asked.stuck
    assert tried == ["/a.py"]
