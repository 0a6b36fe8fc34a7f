from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch_agent.capture.proc import cgroup, node
from hangwatch_agent.capture.proc.cgroup import Memory, memory_of
from tests.unit.agent.capture.made_up import process


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def member(proc: Path, text: str) -> None:
    (process(proc, 5) / "cgroup").write_text(text)


def test_version_2_the_tightest_limit_on_the_way_up(tmp_path: Path) -> None:
    member(tmp_path / "proc", "0::/slurm/job_7/step_0\n")
    root = tmp_path / "cgroup"
    write(root / "slurm", memory__max="9000")
    write(root / "slurm/job_7", memory__max="4000", memory__current="3999")
    events = "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0"
    write(root / "slurm/job_7/step_0", memory__max="max", memory__current="10", memory__events=events)
    assert memory_of(5, tmp_path / "proc", root) == Memory(4000, 3999, 1)


def test_version_1_beside_an_empty_version_2(tmp_path: Path) -> None:
    member(tmp_path / "proc", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n")
    root = tmp_path / "cgroup/memory"
    write(root, memory__limit_in_bytes="9223372036854771712")
    write(
        root / "docker/abc",
        memory__limit_in_bytes="2048",
        memory__usage_in_bytes="100",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 4",
    )
    assert memory_of(5, tmp_path / "proc", tmp_path / "cgroup") == Memory(2048, 100, 4)


def test_a_container_that_sees_only_its_own_root(tmp_path: Path) -> None:
    member(tmp_path / "proc", "0::/kubepods/pod1/abc\n")
    write(tmp_path / "cgroup", memory__max="700", memory__current="50", memory__events="oom_kill 0")
    assert memory_of(5, tmp_path / "proc", tmp_path / "cgroup") == Memory(700, 50, 0)


def test_no_limit_and_nothing_known(tmp_path: Path) -> None:
    member(tmp_path / "proc", "0::/\n")
    assert memory_of(5, tmp_path / "proc", tmp_path / "nowhere") == Memory()
    with pytest.raises(OSError, match="No such file"):
        memory_of(6, tmp_path / "proc", tmp_path / "nowhere")
    (tmp_path / "proc/5/cgroup").write_text("3:cpu:/\n")
    with pytest.raises(OSError, match="no memory cgroup"):
        memory_of(5, tmp_path / "proc", tmp_path / "nowhere")


def test_oom_kills_count_from_the_watchdogs_start(tmp_path: Path) -> None:
    member(tmp_path / "proc", "0::/\n")
    write(tmp_path / "cgroup", memory__events="oom_kill 5")
    assert node.oom_kills(5, proc=tmp_path / "proc", cgroups=tmp_path / "cgroup") == 5
    assert node.oom_kills(6, proc=tmp_path / "proc", cgroups=tmp_path / "cgroup") is None


def test_shared_memory() -> None:
    total, free = cgroup.shm()
    assert 0 <= free <= total
