"""`hangwatch doctor` on real launches: no script trains, what is broken is named, and all ends in time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hangwatch import doctor
from hangwatch.doctor import Check, Report
from hangwatch.wire import codec
from tests.integration.dashboard.processes import ROOT
from tests.ports import free_port

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(200)

TRAINS = """
import pathlib, sys
import torch.distributed as dist
dist.init_process_group("gloo")
pathlib.Path(sys.argv[1]).touch()
"""
SPAWNS = """
import pathlib, sys
import torch.distributed as dist, torch.multiprocessing as mp

def work(rank, port, trained):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    pathlib.Path(trained).touch()

if __name__ == "__main__":
    mp.spawn(work, (int(sys.argv[2]), sys.argv[1]), nprocs=2)
"""
# Starts what its arguments say of each rank, as a broken cluster script does.
STARTS = """
import json, os, subprocess, sys
script, trained, port, *ranks = sys.argv[1:]
given = {**os.environ, "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
started = [subprocess.Popen([sys.executable, script, trained], env=given | json.loads(each)) for each in ranks]
sys.exit(max(each.wait() for each in started))
"""


def script(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def wrong(report: Report) -> dict[str, Check]:
    return {f"{each.family}: {each.name}": each for each in report.checks if each.state in ("warn", "fail")}


def processes_with(token: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [str(path)] if token in path.read_text() else []
        except OSError:
            continue
    return found


def test_torchrun_is_checked_and_does_not_train(tmp_path: Path) -> None:
    """GIVEN a healthy job THEN nothing is wrong, the script has not run, and the page and the JSON are there."""
    trained = tmp_path / "trained"
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        script(tmp_path, TRAINS),
        str(trained),
    ]
    options = ["--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html"), "--seconds", "50"]
    done = subprocess.run(
        [sys.executable, "-m", "hangwatch", "doctor", *options, "--", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "agent"))), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = codec.decode(Report, json.loads((tmp_path / "out.json").read_text()))
    assert set(wrong(report)) <= {"system: shared memory"}
    assert [each.rank for each in report.job.ranks] == [0, 1]
    assert {link.kind for link in report.job.ranks[0].links} == {"tcp", "gloo"}
    assert report.job.ranks[0].code.script.endswith("train.py")
    assert not trained.exists()
    assert "2 of 2 ranks in " in done.stdout
    assert "<script" not in (tmp_path / "out.html").read_text()


def test_ranks_that_are_missing_and_twice_and_unlike_the_others(tmp_path: Path) -> None:
    """GIVEN a cluster script that starts rank 1 twice and rank 3 never THEN both are named, and nothing is left."""
    ranks = [{"RANK": "0", "NCCL_ALGO": "Ring"}, {"RANK": "1"}, {"RANK": "1"}, {"RANK": "2", "LOCAL_RANK": "0"}]
    command = [sys.executable, script(tmp_path, STARTS, "starts.py"), script(tmp_path, TRAINS), str(tmp_path / "t")]
    command += [str(free_port()), *map(json.dumps, ranks)]
    report = doctor.run(command, seconds=45)
    found = wrong(report)
    assert found["ranks: missing"].ranks == (3,)
    assert found["ranks: twice"].ranks == (1,)
    assert "settings: NCCL_ALGO" in found
    assert "links: gloo" not in found, "the three that came talked to each other"
    assert report.took_s < 60
    assert not (tmp_path / "t").exists()
    assert processes_with(str(tmp_path)) == []


@pytest.mark.gallery
def test_spawned_ranks_are_checked_at_their_process_group(tmp_path: Path) -> None:
    command = [sys.executable, script(tmp_path, SPAWNS), str(tmp_path / "trained"), str(free_port())]
    report = doctor.run(command)
    assert set(wrong(report)) <= {"system: shared memory"}
    assert [each.complete for each in report.job.ranks] == [True, True]
    assert not (tmp_path / "trained").exists()


@pytest.mark.gallery
def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            script(tmp_path, STARTS, "starts.py"),
            script(tmp_path, TRAINS),
            str(tmp_path / "t"),
            port,
        ]
        ranks = [json.dumps({"RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
        report = doctor.run([*command, *ranks], seconds=45)
    assert f"port {port} is taken on this host" in wrong(report)["master: store"].found
    assert report.took_s < 60


@pytest.mark.gallery
def test_a_script_that_never_asks_for_a_group_does_not_train(tmp_path: Path) -> None:
    lonely = (
        "import sys, pathlib, torch\ntorch.ones(1, requires_grad=True).backward()\npathlib.Path(sys.argv[1]).touch()"
    )
    report = doctor.run([sys.executable, script(tmp_path, lonely), str(tmp_path / "trained")], seconds=30)
    assert "no rank was started" in wrong(report)["launch: command"].found
    assert any("trains without init_process_group" in line for line in report.job.launch.output)
    assert not (tmp_path / "trained").exists()


def test_a_command_that_is_not_there() -> None:
    report = doctor.run(["no-such-launcher"])
    assert "cannot run no-such-launcher" in wrong(report)["launch: command"].found
