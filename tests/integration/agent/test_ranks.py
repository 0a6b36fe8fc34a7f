"""Real ranks under the sitecustomize folder: who gets a board and who does not, however they were started and end."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hangwatch.model import PeerCount, Phase, Reading
from hangwatch_agent.board.layout import BoardError
from hangwatch_agent.board.reader import read_board
from hangwatch_agent.rank.bootstrap import bootstrap_folder
from tests.ports import free_port

ROOT = Path(__file__).parents[3]

TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def main(rank=-1, world=-1):
    dist.init_process_group("gloo", init_method="env://", rank=rank, world_size=world)
    data = TensorDataset(torch.ones(16, 2))
    sampler = DistributedSampler(data, shuffle=True)
    workers = int(os.environ.get("WORKERS", "0"))
    context = os.environ.get("CONTEXT") if workers else None
    loader = DataLoader(data, batch_size=2, sampler=sampler, num_workers=workers, multiprocessing_context=context)
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for batch, (x,) in enumerate(loader):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    END
    dist.destroy_process_group()
    time.sleep(0.5)  # gloo's threads may abort the process if it ends at once
"""
MAIN = """
if __name__ == "__main__":
    main()
"""
SPAWN = """
if __name__ == "__main__":
    import torch.multiprocessing as mp
    mp.spawn(main, args=(2,), nprocs=2)
"""


class Job:
    """Processes below a pretended `hangwatch run`, and their boards."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.boards = folder, folder / "run"
        self.boards.mkdir(mode=0o700)
        self.started: list[subprocess.Popen[str]] = []
        paths = [str(bootstrap_folder()), str(ROOT), str(ROOT / "agent"), os.environ.get("PYTHONPATH", "")]
        outside = {name: value for name, value in os.environ.items() if not name.startswith("HANGWATCH_")}
        self.environment = outside | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "HANGWATCH_RUN_DIR": str(self.boards),
            "HANGWATCH_RUN_ID": "run-1",
            "HANGWATCH_RAISE": "1",
            "HANGWATCH_TICK": "0.05",
            "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }

    def script(self, end: str = "pass", main: str = MAIN, name: str = "train.py") -> Path:
        path = self.folder / name
        path.write_text(TRAIN.replace("END", end) + main)
        return path

    def start(self, *command: str | Path, **environment: str) -> subprocess.Popen[str]:
        log = (self.folder / f"log-{len(self.started)}.txt").open("w")
        with log:
            process = subprocess.Popen(
                list(map(str, command)), env=self.environment | environment, stdout=log, stderr=log, text=True
            )
        self.started.append(process)
        return process

    def ranks(self, script: Path, world: int = 2, **environment: str) -> list[subprocess.Popen[str]]:
        """Plain ranks: one process each, told by environment variables."""
        return [
            self.start(
                sys.executable, script, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), **environment
            )
            for rank in range(world)
        ]

    def end(self) -> list[int]:
        return [process.wait(200) for process in self.started]

    def log(self, number: int = 0) -> str:
        return (self.folder / f"log-{number}.txt").read_text()

    def readings(self) -> list[Reading]:
        found = []
        for path in self.boards.glob("rank-*.board"):
            try:
                found.append(read_board(path))
            except BoardError:
                continue
        return sorted(found, key=lambda reading: (reading.identity.rank or 0, reading.identity.pid))


def eventually(condition: Callable[[], Any], seconds: float = 120) -> Any:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.05)
    return found


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    for process in job.started:
        process.kill()
        process.wait()


def launcher_when_healthy(job: Job) -> str:
    """The launcher that both ranks name. Raises where one has not trained to its end, or its board says otherwise."""
    assert job.end() == [0] * len(job.started), job.log()
    readings = job.readings()
    assert [reading.identity.rank for reading in readings] == [0, 1]
    for reading in readings:
        progress = reading.progress
        assert (progress.epoch, progress.batch, progress.step) == (1, 3, 7)
        assert (progress.optimizer_steps, progress.forwards) == (8, 8)
        assert reading.identity.world_size == 2
        assert reading.identity.job == "run-1"
        (loader,) = reading.loaders
        assert (loader.length, loader.drawn_per_epoch, loader.exhausted_per_epoch) == (4, (4, 4), (True, True))
        issued = [entry.issued["0"] for entry in reading.steps]
        # One bucket a step; in step 1 DDP builds its buckets anew, and says so to all ranks.
        assert [after - before for before, after in itertools.pairwise(issued[2:])] == [1] * 5
        assert reading.problems == ()
        assert reading.exception is None
    assert not any(path.stat().st_size for path in job.boards.glob("crash-*"))  # a forked rank leaves it, empty
    for number in range(len(job.started)):
        assert "hangwatch" not in job.log(number)
    (launcher,) = {reading.identity.launcher for reading in readings}
    return launcher


def test_ranks_of_torchrun_and_not_torchrun_itself(job: Job) -> None:
    job.start(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", job.script(), RANK="0")
    assert launcher_when_healthy(job) == "torchrun"
    assert {reading.phase for reading in job.readings()} <= {Phase.FINALIZING}


def test_ranks_of_spawn_and_not_their_parent(job: Job) -> None:
    job.start(sys.executable, job.script(main=SPAWN))
    assert launcher_when_healthy(job) == "spawn"


def test_ranks_that_are_forked(job: Job) -> None:
    fork = SPAWN.replace(
        "mp.spawn(main, args=(2,), nprocs=2)", "mp.start_processes(main, (2,), 2, start_method='fork')"
    )
    job.start(sys.executable, job.script(main=fork))
    assert launcher_when_healthy(job) == "spawn"


def test_a_rank_whose_flight_recorder_is_off(job: Job) -> None:
    script = job.script(end="time.sleep(200) if dist.get_rank() == 1 else dist.barrier()")
    job.ranks(script, TORCH_FR_BUFFER_SIZE="0")
    eventually(lambda: [reading.progress.step for reading in job.readings()] == [7, 7])
    eventually(lambda: job.readings()[0].open_calls)

    def counts() -> list[int]:
        return [head.issued - head.completed for reading in job.readings() for head in reading.heads]

    eventually(lambda: counts() == [1, 0])
    assert any("recorder is off" in problem for problem in job.readings()[0].problems)


@pytest.mark.gallery  # each worker imports torch anew
def test_plain_ranks_with_spawned_loader_workers(job: Job) -> None:
    job.ranks(job.script(), WORKERS="1", CONTEXT="spawn")
    assert launcher_when_healthy(job) == "plain"
    assert all(len(reading.loaders[0].worker_pids) == 1 for reading in job.readings())


def test_plain_ranks_with_forked_loader_workers(job: Job) -> None:
    job.ranks(job.script(), WORKERS="2", CONTEXT="fork")
    assert launcher_when_healthy(job) == "plain"


MESSAGES = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, one = dist.get_rank(), torch.ones(1)
pair = dist.new_group([1, 2])
for _ in range(3):  # around a ring
    sent = dist.isend(one, (rank + 1) % 3)
    dist.recv(one, (rank - 1) % 3)
    sent.wait()
if rank == 1:
    dist.send(one, 2, group=pair)
    dist.recv(one)
elif rank == 2:
    dist.recv(one, 1, group=pair)
else:
    dist.send(one, 1)
dist.barrier()
"""


def test_messages_are_counted_by_peer_and_group(job: Job) -> None:
    script = job.folder / "messages.py"
    script.write_text(MESSAGES)
    job.ranks(script, world=3)
    assert job.end() == [0, 0, 0], job.log()
    (ring0, *_), (ring1, pair1), (ring2, pair2) = (reading.heads for reading in job.readings())
    assert ring0.peers == (PeerCount(1, sent=4), PeerCount(2, received=3))
    assert ring1.peers == (PeerCount(2, sent=3), PeerCount(0, received=3))
    assert (ring1.sent, ring1.received) == (3, 4)  # one came from any rank
    assert ring2.peers == (PeerCount(0, sent=3), PeerCount(1, received=3))
    assert (pair1.peers, pair2.peers) == ((PeerCount(2, sent=1),), (PeerCount(1, received=1),))


def test_a_rank_that_dies_of_a_kill_leaves_its_board(job: Job) -> None:
    script = job.script(end="time.sleep(200) if dist.get_rank() == 1 else dist.barrier()")
    _, killed = job.ranks(script)
    eventually(lambda: [reading.progress.step for reading in job.readings()] == [7, 7])
    (waiting,) = eventually(lambda: job.readings()[0].open_calls)
    assert (waiting.op, waiting.frames[-1].file, waiting.step) == ("barrier", str(script), 7)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    reading = job.readings()[1]
    assert (reading.identity.pid, reading.progress.step) == (killed.pid, 7)


def test_evidence_of_a_mismatch_survives_the_abort(job: Job) -> None:
    job.ranks(job.script(end="dist.all_reduce(torch.ones(1000 + dist.get_rank()))"))
    codes = job.end()
    assert any(codes)
    sizes = [reading.calls[-1].sizes for reading in job.readings()]
    assert sizes == [((1000,),), ((1001,),)]


def test_an_uncaught_exception_is_printed_as_without_us(job: Job) -> None:
    script = job.script(end="next(iter(DataLoader([1], collate_fn=lambda batch: 1 / 0)))")
    job.ranks(script, world=1)
    assert job.end() == [1]
    (reading,) = job.readings()
    assert reading.phase in (Phase.FAILED, Phase.FINALIZING, Phase.ATEXIT)
    assert reading.exception is not None
    assert (reading.exception.type, reading.exception.fatal) == ("ZeroDivisionError", True)
    assert reading.exception.frames[0].file == str(script)
    with_us = job.log()
    plain = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert _traceback(with_us) == _traceback(plain.stderr)


def _traceback(text: str) -> str:
    return text[text.index("Traceback") :]


def test_an_exception_before_torch_was_imported(job: Job) -> None:
    script = job.folder / "early.py"
    script.write_text("import json\nraise SystemError('no config')\n")
    job.start(sys.executable, script, RANK="1", WORLD_SIZE="2")
    job.start(sys.executable, script)
    assert job.end() == [1, 1]
    (reading,) = job.readings()
    assert reading.identity.rank == 1
    assert reading.exception is not None
    assert reading.exception.message == "no config"
    assert "SystemError: no config" in job.log(0)
    assert "hangwatch" not in job.log(0)


def test_processes_that_are_no_ranks_get_no_board(job: Job) -> None:
    script = job.folder / "tool.py"
    script.write_text("import torch, torch.distributed\nassert list(torch.utils.data.DataLoader([1]))\n")
    job.start(sys.executable, script)
    job.start(sys.executable, script, RANK="0", HANGWATCH_RANK_PID="1:0")
    job.start(sys.executable, script, RANK="0", HANGWATCH_ENABLED="0")
    assert job.end() == [0, 0, 0]
    assert job.readings() == []


def test_the_stages_of_the_end(job: Job) -> None:
    script = job.folder / "end.py"
    script.write_text(
        "import atexit, pathlib, sys, threading, time, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "def wait(path):\n"
        "    while not path.exists():\n"
        "        time.sleep(0.05)\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "atexit.register(wait, folder / 'exit')\n"
        "threading.Thread(target=wait, args=(folder / 'thread',)).start()\n"
    )
    job.start(sys.executable, script, job.folder, RANK="0", WORLD_SIZE="1")
    for phase, ends in ((Phase.MAIN_DONE, "thread"), (Phase.ATEXIT, "exit")):
        eventually(lambda phase=phase: [reading.phase for reading in job.readings()] == [phase])  # type: ignore[misc]
        (job.folder / ends).touch()
    assert job.end() == [0]
    assert job.readings()[0].phase is Phase.FINALIZING


def test_the_users_own_sitecustomize_runs_too(job: Job, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('own sitecustomize')\n")
    path = job.environment["PYTHONPATH"] + os.pathsep + str(own)
    job.start(sys.executable, "-c", "import sitecustomize; print(sitecustomize.__file__)", PYTHONPATH=path)
    assert job.end() == [0]
    assert job.log().splitlines() == ["own sitecustomize", str(own / "sitecustomize.py")]


def test_hangwatch_is_found_in_an_interpreter_that_does_not_have_it(job: Job) -> None:
    job.ranks(job.script(), world=1, PYTHONPATH=str(bootstrap_folder()))
    assert job.end() == [0], job.log()
    assert [reading.progress.step for reading in job.readings()] == [15]


def test_another_process_pays_next_to_nothing(job: Job) -> None:
    job.start(sys.executable, "-X", "importtime", "-c", "pass")
    job.end()
    ours = [line for line in job.log().splitlines() if "hangwatch" in line]
    assert ours == []
