"""Who was started as a rank, on a made-up machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import Table
from hangwatch_agent.watchdog.launched_ranks import LaunchedRanks
from tests.unit.agent.capture.made_up import process


def environment(rank: int, **more: str) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": "2", "HOME": "/root", **more}


class Deaths:
    def __init__(self) -> None:
        self.ended: dict[tuple[int, int], float] = {}
        self.codes: dict[tuple[int, int], int] = {}
        self.watched: list[int] = []

    def watch(self, pid: int, ticks: int = 0) -> None:
        self.watched.append(pid)


def launched(proc: Path) -> LaunchedRanks:
    process(proc, 10, command="python launch.py")
    process(proc, 20, parent=10, environment=environment(0))
    process(proc, 21, parent=10, environment=environment(1))
    process(proc, 22, parent=21, environment=environment(1))  # a worker
    found = LaunchedRanks(10)
    found.update(Table.read(proc), 100.0)
    return found


def end(proc: Path, pid: int) -> None:
    shutil.rmtree(proc / str(pid))


def test_ranks_and_not_their_children(tmp_path: Path) -> None:
    found = launched(tmp_path).known({20})
    assert [(each.rank, each.pid, each.board) for each in found] == [(0, 20, True), (1, 21, False)]
    assert {each.world_size for each in found} == {2}
    assert found[0].environment == {"RANK": "0", "WORLD_SIZE": "2"}


def test_a_worker_first_seen_when_its_rank_has_ended_is_no_second_rank(tmp_path: Path) -> None:
    process(tmp_path, 10, command="python launch.py")
    process(tmp_path, 21, parent=10, environment=environment(1))
    deaths = Deaths()
    found = LaunchedRanks(10, deaths)
    found.update(Table.read(tmp_path), 100.0)
    end(tmp_path, 21)
    deaths.ended[21, 100] = procfs.boot_time(tmp_path) + 100.8
    process(tmp_path, 23, parent=10, environment=environment(1), ticks=10_050)  # forked by 21, an orphan since
    process(tmp_path, 24, parent=10, environment=environment(1), ticks=10_050, command="python other.py")
    process(tmp_path, 25, parent=10, environment=environment(1), ticks=10_090)
    found.update(Table.read(tmp_path), 101.0)
    assert [each.pid for each in found.known()] == [24, 25]


def test_who_is_gone_is_remembered(tmp_path: Path) -> None:
    found = launched(tmp_path)
    end(tmp_path, 21)
    end(tmp_path, 22)
    found.update(Table.read(tmp_path), 101.0)
    assert [(each.rank, each.ended_at, each.exit_code) for each in found.known()] == [(0, None, None), (1, 101.0, None)]


def test_a_zombie_tells_its_code(tmp_path: Path) -> None:
    found = launched(tmp_path)
    end(tmp_path, 21)
    process(tmp_path, 21, parent=10, state="Z", exit_status=3 << 8)
    found.update(Table.read(tmp_path), 101.0)
    assert [(each.rank, each.exit_code) for each in found.known() if each.ended_at] == [(1, 3)]


def test_the_descriptor_has_the_code_where_nothing_else_has_it(tmp_path: Path) -> None:
    process(tmp_path, 10)
    process(tmp_path, 20, parent=10, environment=environment(0))
    deaths = Deaths()
    found = LaunchedRanks(10, deaths)
    found.update(Table.read(tmp_path), 100.0)
    end(tmp_path, 20)
    found.update(Table.read(tmp_path), 101.0)
    deaths.ended[20, 100], deaths.codes[20, 100] = 100.4, -9  # its thread comes a moment later
    found.update(Table.read(tmp_path), 102.0)
    assert deaths.watched == [20]
    assert [(each.ended_at, each.exit_code) for each in found.known()] == [(101.0, -9)]


def test_a_pid_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    found = launched(tmp_path)
    end(tmp_path, 21)
    process(tmp_path, 21, parent=10, environment=environment(0), ticks=9000)
    found.update(Table.read(tmp_path), 101.0)
    ranks = [(each.rank, each.pid, each.ended_at) for each in found.known()]
    assert ranks == [(0, 20, None), (0, 21, None), (1, 21, 101.0)]


def test_a_rank_that_was_started_again_lives(tmp_path: Path) -> None:
    found = launched(tmp_path)
    end(tmp_path, 21)
    process(tmp_path, 30, parent=10, environment=environment(1), ticks=10_050)
    found.update(Table.read(tmp_path), 101.0)
    assert [(each.rank, each.pid, each.ended_at) for each in found.known()] == [(0, 20, None), (1, 30, None)]


def test_who_lived_beside_another_of_the_same_rank_is_not_forgotten(tmp_path: Path) -> None:
    found = launched(tmp_path)
    process(tmp_path, 30, parent=10, environment=environment(1), ticks=9_000)
    found.update(Table.read(tmp_path), 101.0)
    end(tmp_path, 21)
    found.update(Table.read(tmp_path), 102.0)
    assert [(each.rank, each.pid) for each in found.known()] == [(0, 20), (1, 21), (1, 30)]


def test_only_the_newest_generation_of_a_restarting_launcher_counts(tmp_path: Path) -> None:
    process(tmp_path, 10, command="torchrun train.py")
    process(tmp_path, 20, parent=10, environment=environment(0, TORCHELASTIC_RESTART_COUNT="0"))
    found = LaunchedRanks(10)
    found.update(Table.read(tmp_path), 100.0)
    end(tmp_path, 20)
    process(tmp_path, 30, parent=10, environment=environment(1, TORCHELASTIC_RESTART_COUNT="1"))
    found.update(Table.read(tmp_path), 101.0)
    assert [each.pid for each in found.known()] == [30]


def test_a_child_that_a_dead_rank_left_behind_carries_its_mark(tmp_path: Path) -> None:
    process(tmp_path, 10)
    process(tmp_path, 22, parent=10, environment=environment(1, HANGWATCH_RANK_PID="21:1"))
    found = LaunchedRanks(10)
    found.update(Table.read(tmp_path), 100.0)
    assert found.known() == ()


def test_a_shell_that_becomes_a_rank(tmp_path: Path) -> None:
    process(tmp_path, 10)
    folder = process(tmp_path, 20, parent=10, ticks=99_999_999_999)
    found = LaunchedRanks(10)
    found.update(Table.read(tmp_path), 100.0)
    assert found.known() == ()
    (folder / "environ").write_text("RANK=0\0")
    found.update(Table.read(tmp_path), 101.0)
    assert [each.rank for each in found.known()] == [0]


def test_torchrun_without_ranks(tmp_path: Path) -> None:
    process(tmp_path, 10, command="torchrun --nnodes 2 train.py")
    found = LaunchedRanks(10)
    found.update(Table.read(tmp_path), 100.0)
    assert found.elastic
    process(tmp_path, 20, parent=10, environment=environment(0))
    found.update(Table.read(tmp_path), 101.0)
    assert not found.elastic


def test_what_may_not_be_read_is_passed_over(tmp_path: Path) -> None:
    process(tmp_path, 10)
    (process(tmp_path, 20, parent=10, environment=environment(0)) / "environ").unlink()
    process(tmp_path, 21, parent=10, environment={"RANK": "one"})
    process(tmp_path, 22, parent=10, environment={"RANK": "9" * 40})
    found = LaunchedRanks(10)
    found.update(Table.read(tmp_path), 100.0)
    found.update(Table({}, tmp_path), 101.0)
    assert found.known() == ()
