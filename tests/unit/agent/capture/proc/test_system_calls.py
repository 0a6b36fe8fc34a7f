from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from hangwatch_agent.capture.proc import system_calls
from hangwatch_agent.capture.proc.system_calls import NAMES, SystemCall, parse


@pytest.mark.parametrize(
    ("text", "machine", "name"),
    [
        ("0 0x3 0x7f 0x20 0x0 0x0 0x0 0x7ffe 0x7f01", "x86_64", "read"),
        ("63 0x3 0x7f 0x20 0x0 0x0 0x0 0x7ffe 0x7f01", "aarch64", "read"),
        ("202 0x3 0x7f 0x20 0x0 0x0 0x0 0x7ffe 0x7f01", "x86_64", "futex"),
        ("98 0x3 0x7f 0x20 0x0 0x0 0x0 0x7ffe 0x7f01", "aarch64", "futex"),
        ("9999 0x3 0x7f 0x20 0x0 0x0 0x0 0x7ffe 0x7f01", "x86_64", "call 9999"),
        ("0 0x3 0x7f 0x20 0x0 0x0 0x0 0x7ffe 0x7f01", "riscv64", "call 0"),
        ("running\n", "x86_64", ""),
        ("-1 0x7ffe 0x7f01", "x86_64", ""),
    ],
)
def test_names(text: str, machine: str, name: str) -> None:
    assert parse(text, machine).name == name


@pytest.mark.parametrize("text", ["", "x y"])
def test_nonsense(text: str) -> None:
    with pytest.raises(ValueError, match=r"empty|invalid literal"):
        parse(text, "x86_64")


def test_the_machines_agree_about_what_blocks() -> None:
    """aarch64 has no calls that newer ones replaced: whatever else it has, x86-64 has too."""
    assert set(NAMES["aarch64"].values()) - set(NAMES["x86_64"].values()) == {"renameat"}


def test_descriptors_that_cannot_be_read(tmp_path: Path) -> None:
    assert system_calls.descriptor(SystemCall("poll", (4096, 2, 0, 0, 0, 0)), 1, tmp_path) is None
    assert system_calls.descriptor(SystemCall("pselect6", (5, 4096, 0, 0, 0, 0)), 1, tmp_path) is None
    assert system_calls.descriptor(SystemCall("read", (0xFFFFFFFF,)), 1, tmp_path) is None
    assert system_calls.descriptor(SystemCall("sendfile", (4, 5)), 1, tmp_path) == 5
    assert system_calls.path(SystemCall("openat", (0, 4096)), 1, tmp_path) is None
    assert system_calls.path(SystemCall("futex", (0, 4096)), 1, tmp_path) is None


def test_memory_as_the_arguments_point_to_it(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    memory = bytearray(12288)
    memory[16:32] = b"\xff\xff\xff\xff\x01\0\0\0" + b"\x09\0\0\0\x01\0\0\0"  # pollfd -1 (left out), then 9
    memory[64] = 0b1000000
    memory[4090:4112] = b"/data/across-two-pages"
    (tmp_path / "1/mem").write_bytes(memory)
    assert system_calls.descriptor(SystemCall("poll", (16, 2)), 1, tmp_path) == 9
    assert system_calls.descriptor(SystemCall("select", (10, 64, 0)), 1, tmp_path) == 6
    assert system_calls.path(SystemCall("openat", (0, 4090)), 1, tmp_path) == "/data/across-two-pages"


@pytest.mark.parametrize(
    ("call", "child"),
    [
        (SystemCall("wait4", (4711, 0, 0, 0)), 4711),
        (SystemCall("wait4", (0xFFFFFFFF, 0, 0, 0)), None),  # -1: any child
        (SystemCall("wait4", (0, 0, 0, 0)), None),  # any child of the group
        (SystemCall("waitid", (1, 4711, 0, 0)), 4711),
        (SystemCall("waitid", (0, 4711, 0, 0)), None),
        (SystemCall("read", (3,)), None),
        (SystemCall("wait4"), None),
    ],
)
def test_the_child_that_is_waited_for(call: SystemCall, child: int | None) -> None:
    assert system_calls.awaited_child(call) == child


@pytest.mark.parametrize(
    ("arguments", "private"),
    [
        ((4096, 0x189, 0, 0), True),  # a lock of threading: private, without a timeout
        ((4096, 0x80, 2, 0), True),
        ((4096, 0x189, 0, 8192), False),  # with a timeout
        ((4096, 0x109, 0, 0), False),  # shared between processes
        ((4096, 0x81, 1, 0), False),  # a wake
        ((4096,), False),
    ],
)
def test_waits_that_only_the_process_itself_can_end(arguments: tuple[int, ...], private: bool) -> None:
    assert system_calls.waits_privately(SystemCall("futex", arguments)) is private
    assert not system_calls.waits_privately(SystemCall("read", arguments))


def test_for_how_long_a_thread_will_sleep(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    until = time.clock_gettime(time.CLOCK_MONOTONIC) + 500
    memory = bytearray(64)
    memory[16:32] = struct.pack("=qq", int(until), 0)
    memory[32:48] = struct.pack("=qq", 7, 500_000_000)
    (tmp_path / "1/mem").write_bytes(memory)

    def sleeps(name: str, *arguments: int) -> float | None:
        return system_calls.sleeps_for(SystemCall(name, arguments), 1, tmp_path)

    assert sleeps("clock_nanosleep", time.CLOCK_MONOTONIC, 1, 16) == pytest.approx(500, abs=5)
    assert sleeps("clock_nanosleep", time.CLOCK_MONOTONIC, 0, 32) == sleeps("nanosleep", 32) == 7.5
    assert sleeps("clock_nanosleep", time.CLOCK_MONOTONIC, 1, 60) is None  # cut off
    assert sleeps("nanosleep") is sleeps("read", 3) is None


def test_a_select_without_descriptors_is_a_sleep(tmp_path: Path) -> None:
    """Before 3.11 Python's time.sleep is such a call."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1/stat").write_text("1 (python) S 0 1 1 " + "0 " * 48)
    memory = bytearray(64)
    memory[16:32] = struct.pack("=qq", 0, 250_000)
    memory[32:48] = struct.pack("=qq", 0, 250_000_000)
    (tmp_path / "1/mem").write_bytes(memory)

    def sleeps(name: str, *arguments: int) -> float | None:
        return system_calls.sleeps_for(SystemCall(name, arguments), 1, tmp_path)

    assert sleeps("select", 0, 0, 0, 0, 16, 0) == 0.25
    assert sleeps("pselect6", 0, 0, 0, 0, 32, 0) == 0.25
    assert sleeps("pselect6", 0, 0, 0, 0, 0, 0) is None, "without a timeout it waits for a signal"
    assert sleeps("select", 5, 48, 0, 0, 16, 0) is None, "it watches descriptors"


def test_in_how_long_a_call_that_waits_gives_up(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/stat").write_text("1 (python) S 0 1 1 " + "0 " * 48)
    memory = bytearray(80)
    memory[16:32] = struct.pack("=qq", int(time.clock_gettime(time.CLOCK_MONOTONIC)) + 80, 0)
    memory[32:48] = struct.pack("=qq", 7, 500_000_000)
    memory[48:64] = struct.pack("=qq", int(time.time()) + 60, 0)
    (tmp_path / "1/mem").write_bytes(memory)

    def after(name: str, *arguments: int) -> float | None:
        return system_calls.times_out_after(SystemCall(name, arguments), 1, tmp_path)

    assert after("poll", 0, 1, 90_000) == after("epoll_wait", 3, 0, 1, 90_000) == 90.0
    assert after("poll", 0, 1, 0xFFFFFFFF) is None, "-1: it waits for ever"
    assert after("ppoll", 0, 1, 32) == after("pselect6", 5, 0, 0, 0, 32) == after("futex", 0, 128, 0, 32) == 7.5
    assert after("futex", 0, 128 | 9, 0, 16) == pytest.approx(80, abs=5)
    assert after("futex", 0, 128 | 9 | 256, 0, 48) == pytest.approx(60, abs=5), "by the date"
    assert after("futex", 0, 128 | 6, 0, 48) == pytest.approx(60, abs=5)
    assert after("futex", 0, 128, 0, 0) is after("ppoll", 0, 1, 0) is None, "without a timeout"
    assert after("futex", 0, 129, 1, 32) is after("read", 3, 0, 9) is after("poll", 0) is None
