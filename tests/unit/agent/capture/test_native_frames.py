"""Native frames: how many processes are paused at a time, by the memory that is free, and which stacks are taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangwatch.model import Frame, Job, Snapshot
from hangwatch_agent.capture import native_frames
from hangwatch_agent.capture.native_frames import at_once, memory_available, with_native_stacks
from hangwatch_agent.capture.options import CaptureOptions
from hangwatch_agent.capture.stacks.py_spy import Dump
from tests.unit.job import IN_BACKWARD, main_thread, rank


def machine(folder: Path, free_gib: int, limit_gib: int | None = None, used_gib: int = 0) -> CaptureOptions:
    proc, cgroups = folder / "proc", folder / "cgroup"
    (proc / str(os.getpid())).mkdir(parents=True)
    (cgroups / "job").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:   {free_gib << 20} kB\n")
    (proc / str(os.getpid()) / "cgroup").write_text("0::/job\n")
    (cgroups / "job" / "memory.max").write_text(str(limit_gib << 30) if limit_gib is not None else "max")
    (cgroups / "job" / "memory.current").write_text(str(used_gib << 30))
    return CaptureOptions(proc=proc, cgroups=cgroups)


@pytest.mark.parametrize(
    ("free", "limit", "used", "expected"), [(64, None, 0, 2), (64, 32, 4, 2), (64, 32, 30, 1), (3, None, 0, 1)]
)
def test_two_at_a_time_where_memory_is_plenty(
    free: int, limit: int | None, used: int, expected: int, tmp_path: Path
) -> None:
    assert at_once(machine(tmp_path, free, limit, used)) == expected


def test_a_machine_that_does_not_say_its_memory_has_none_to_give(tmp_path: Path) -> None:
    assert memory_available(tmp_path) == 0
    assert at_once(CaptureOptions(proc=tmp_path, cgroups=tmp_path)) == 1


COLLECTS = (Frame("libpython3.11.so", 0, "gc_collect_main", native=True),)
WAITS = (Frame("libc.so.6", 0, "pthread_cond_wait", native=True), *IN_BACKWARD)


@pytest.mark.parametrize(("native", "taken"), [(WAITS, True), (COLLECTS, False)])
def test_native_frames_of_a_rank_that_is_on_its_way_out_are_of_another_moment(
    native: tuple[Frame, ...], *, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a rank whose wait times out WHEN its native frames are taken THEN the stack of its wait is kept."""
    waiting = rank(0, IN_BACKWARD)
    dumps = {waiting.pid: Dump(waiting.pid or 0, stacks=(main_thread(native),))}
    monkeypatch.setattr(native_frames, "_dumps", lambda *_: dumps)
    found = with_native_stacks(Snapshot(Job("job", "job", 1), 0.0, (waiting,)), [waiting.pid or 0])
    assert found.ranks[0].stacks[0].frames == (native if taken else IN_BACKWARD)
