"""Ends of pipes, on a made-up machine."""

from __future__ import annotations

from pathlib import Path

from hangwatch.model import OpenFile, Pipe, ProcessFacts
from hangwatch_agent.capture.proc import pipes
from tests.unit.agent.capture.made_up import process

OUTPUT = "pipe:[7]"


def holds(folder: Path, fd: int, target: str, flags: str) -> None:
    (folder / "fd" / str(fd)).symlink_to(target)
    (folder / "fdinfo").mkdir(exist_ok=True)
    (folder / "fdinfo" / str(fd)).write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t15\n")


def facts(pid: int, call: str, path: str, *, output: str = "") -> ProcessFacts:
    standard = (OpenFile(1, output),) if output else ()
    return ProcessFacts(pid, "S", system_call=call, blocked_on=OpenFile(3, path), standard_pipes=standard)


def test_pipes_that_a_process_writes_to_or_reads_from_to_the_end() -> None:
    writer, reader = facts(10, "write", OUTPUT, output=OUTPUT), facts(11, "read", "pipe:[8]")
    assert pipes.awaited([writer, reader]) == {OUTPUT, "pipe:[8]"}


def test_of_polled_pipes_only_those_that_are_an_output() -> None:
    poller, other, orphan = facts(10, "poll", OUTPUT), facts(11, "poll", "pipe:[9]"), facts(12, "", "", output=OUTPUT)
    assert pipes.awaited([poller, other, orphan]) == {OUTPUT}


def test_named_pipes_and_files() -> None:
    named, file = facts(10, "write", "/tmp/out", output="/tmp/out"), facts(11, "write", "/tmp/log")
    feed = ProcessFacts(12, "S", system_call="read", blocked_on=OpenFile(3, "/tmp/feed", "fifo"))
    assert pipes.awaited([named, file, feed]) == {"/tmp/out", "/tmp/feed"}


def test_who_holds_which_end(tmp_path: Path) -> None:
    holds(process(tmp_path, 10), 3, OUTPUT, "0100000")
    orphan = process(tmp_path, 11)
    holds(orphan, 1, OUTPUT, "01")
    holds(orphan, 2, OUTPUT, "0100001")
    holds(process(tmp_path, 12), 4, OUTPUT, "02")
    (process(tmp_path, 13) / "fd" / "1").symlink_to(OUTPUT)  # without fdinfo: it has ended since
    process(tmp_path, 14)
    assert pipes.ends([OUTPUT, "pipe:[9]"], tmp_path) == (Pipe(OUTPUT, (10, 12), (11, 12)), Pipe("pipe:[9]"))


def test_nothing_is_scanned_where_no_process_is_blocked(tmp_path: Path) -> None:
    assert pipes.ends([], tmp_path / "none") == ()
