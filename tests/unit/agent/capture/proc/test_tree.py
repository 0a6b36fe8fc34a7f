"""Who is who, on a made-up machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch_agent.capture.proc import tree
from hangwatch_agent.shared.procfs import Table
from tests.unit.agent.capture.made_up import process

SPAWNED = "python -c from\xa0multiprocessing.spawn\xa0import\xa0spawn_main --multiprocessing-fork"
SERVER = "python -c from\xa0multiprocessing.forkserver\xa0import\xa0main;main(8)"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("/usr/bin/python /venv/bin/torchrun --nproc-per-node 2 train.py", "launcher"),
        ("python -m torch.distributed.run train.py", "launcher"),
        ("python -m torch.distributed.launch train.py", "launcher"),
        ("mpirun -n 4 python train.py", "launcher"),
        ("srun python train.py", "launcher"),
        ("python -c from\xa0multiprocessing.resource_tracker\xa0import\xa0main", "helper"),
        (SERVER, "helper"),
        ("/site-packages/torch/bin/torch_shm_manager", "helper"),
        ("python /site-packages/torch/_inductor/compile_worker/__main__.py --workers=8", "compile-worker"),
        ("/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus -quiet", "compile-worker"),
        ("x86_64-linux-gnu-g++-12 -O3", "compile-worker"),
        ("ptxas -o x", "compile-worker"),
        (SPAWNED, None),
        ("python train.py --launcher torch.distributed", None),
        ("sleep 100", None),
        ("", None),
    ],
)
def test_kinds_by_command(command: str, kind: str | None) -> None:
    assert tree.kind_of_command(tuple(command.split(" "))) == kind


def members(proc: Path, ranks: dict[int, int | None], **options: object) -> set[tuple[int, str, int | None]]:
    found = tree.members(ranks, Table.read(proc), **options)  # type: ignore[arg-type]
    return {(each.pid, each.role, each.rank) for each in found}


def test_torchrun_below_hangwatch_run(tmp_path: Path) -> None:
    process(tmp_path, 10, command="hangwatch run -- torchrun train.py")
    process(tmp_path, 11, parent=10, command="python torchrun train.py")
    process(tmp_path, 20, parent=11)
    process(tmp_path, 21, parent=11)
    process(tmp_path, 30, parent=20, name="pt_data_worker")
    process(tmp_path, 31, parent=20, command="torch_shm_manager")
    process(tmp_path, 32, parent=21, command="git status")
    process(tmp_path, 99, command="python another_job.py")
    found = members(tmp_path, {20: 0, 21: 1}, root=11, ourselves=frozenset([10]))
    assert found == {(11, "launcher", None), (30, "loader-worker", 0), (31, "helper", 0), (32, "child", 1)}


def test_workers_of_a_fork_server_keep_its_command(tmp_path: Path) -> None:
    process(tmp_path, 20)
    process(tmp_path, 21, parent=20, command=SERVER)
    process(tmp_path, 22, parent=21, command=SERVER)
    process(tmp_path, 23, parent=21, command=SERVER, name="pt_data_worker")
    assert members(tmp_path, {20: 0}) == {(21, "helper", 0), (22, "child", 0), (23, "loader-worker", 0)}


def test_ranks_that_attached_by_themselves_below_a_script_in_a_shell(tmp_path: Path) -> None:
    process(tmp_path, 5, name="bash", command="bash")
    process(tmp_path, 10, parent=5, command="python launch.py", group=10, session=5)
    process(tmp_path, 20, parent=10, group=10, session=5)
    process(tmp_path, 21, parent=10, group=10, session=5)
    process(tmp_path, 50, parent=5, command="vim", group=50, session=5)
    assert members(tmp_path, {20: 0, 21: 1}) == {(10, "launcher", None)}


def test_ranks_started_by_a_shell_have_no_launcher(tmp_path: Path) -> None:
    process(tmp_path, 5, name="bash", command="bash")
    process(tmp_path, 20, parent=5)
    assert members(tmp_path, {20: 0}) == set()


def test_orphans_by_session_and_by_mark(tmp_path: Path) -> None:
    """Rank 0 (pid 20) is gone; what it started in its session, and what carries the run's mark, is still there."""
    process(tmp_path, 11, command="torchrun")
    process(tmp_path, 30, parent=1, session=20, group=20)
    process(tmp_path, 31, parent=1, environment={"HANGWATCH_RUN_ID": "r1", "RANK": "1"})
    process(tmp_path, 32, parent=1, environment={"HANGWATCH_RUN_ID": "r1"})
    process(tmp_path, 33, parent=1, environment={"HANGWATCH_RUN_ID": "r2"})
    assert members(tmp_path, {20: 0}, root=11, run_id="r1") == {
        (11, "launcher", None),
        (30, "orphan", 0),
        (31, "orphan", 1),
        (32, "orphan", None),
    }


def test_ranks_below_a_rank_are_not_its_children(tmp_path: Path) -> None:
    """mp.spawn from a process that is itself rank 0 of a job of nodes."""
    process(tmp_path, 20)
    process(tmp_path, 21, parent=20)
    process(tmp_path, 22, parent=21)
    assert members(tmp_path, {20: 0, 21: 1}) == {(22, "child", 1)}


def test_who_claims_a_rank(tmp_path: Path) -> None:
    first = {"RANK": "0", "WORLD_SIZE": "2", "HANGWATCH_RUN_ID": "r1"}
    process(tmp_path, 10, command="torchrun", environment={"HANGWATCH_RUN_ID": "r1"})
    process(tmp_path, 20, parent=10, environment=first)
    process(tmp_path, 21, parent=20, environment=first)  # a worker inherits it
    process(tmp_path, 22, parent=10, environment={**first, "RANK": "1", "WORLD_SIZE": "x"})
    process(tmp_path, 23, parent=10, environment={**first, "RANK": "one"})
    process(tmp_path, 40, environment={**first, "HANGWATCH_RUN_ID": "r2"})
    (process(tmp_path, 41, parent=10) / "environ").unlink()
    table = Table.read(tmp_path)
    for found in (tree.candidates(table, root=10), tree.candidates(table, run_id="r1")):
        assert [(each.pid, each.rank, each.world_size) for each in found] == [(20, 0, 2), (22, 1, None)]
    assert tree.candidates(table) == ()
