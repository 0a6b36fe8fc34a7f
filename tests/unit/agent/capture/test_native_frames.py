"""How many processes are paused for native frames at a time, by the memory that is free."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangwatch_agent.capture.native_frames import at_once, memory_available
from hangwatch_agent.capture.options import CaptureOptions


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
