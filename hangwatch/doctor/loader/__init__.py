"""Walks a DataLoader as N ranks would, with 0 and with N workers, and says what would go wrong with it.

    from hangwatch.doctor import loader

    report = loader.run("train.py:make_loader", ranks=4)

Every walk is a process of its own with a deadline; its workers end with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hangwatch.doctor.launch import agent_folder
from hangwatch.doctor.loader.checks import all_checks
from hangwatch.doctor.loader.model import BEGINS, IMPORT_S, SPARE_S, TOLD, Epoch, LoaderReport, Walk
from hangwatch.errors import HangwatchError
from hangwatch.ports import free_port
from hangwatch.wire import codec

__all__ = ["Epoch", "LoaderReport", "Walk", "run"]

SECONDS, BATCHES = 30.0, 200
PACES = (1, 2, 4, 8, 16)
PACE_BATCHES = 40

Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """No display."""


def run(
    target: str,
    *,
    ranks: int = 2,
    workers: int | None = None,
    batches: int = BATCHES,
    seconds: float = SECONDS,
    progress: Progress = silent,
    environment: Mapping[str, str] | None = None,
) -> LoaderReport:
    """Walk a loader. Takes about `seconds`, and what each process needs to import torch and the user's module.

    Args:
        target: `FILE.py:NAME` or `MODULE:NAME`; NAME is a DataLoader, or a function that returns one. A function is
            called with those of `rank`, `world_size` and `num_workers` that it has parameters for.
        ranks: how many ranks walk at once, with torch's process group between them where the loader asks for one.
        workers: in place of the loader's own number.
        batches: at most so many of each pass.
        progress: called with what is walked, and how many walks of how many are done.

    Raises:
        HangwatchError: `target` is no name of a loader, or its file is not there.
    """
    _check(target)
    began = time.monotonic()
    given = {**(os.environ if environment is None else environment)}
    plan = _Plan(target, batches, seconds, given)
    progress("as ranks", 0, 4)
    walks = plan.walk([{"rank": rank, "world": ranks, "workers": workers, "epochs": 3} for rank in range(ranks)], 0.45)
    own = max((walk.workers for walk in walks), default=0) or 2
    if all(walk.problem == "" for walk in walks):
        progress("with the same seed again", 1, 4)
        again = [{"rank": 0, "world": ranks, "workers": own, "purpose": "again"} for _ in range(2)]
        walks += plan.walk(again, 0.15)
        progress("without workers", 2, 4)
        walks += plan.walk([{"rank": 0, "world": ranks, "workers": 0, "purpose": "pace"}], 0.15)
        walks += _paces(plan, ranks, began + seconds, progress)
    progress("done", 4, 4)
    return LoaderReport(target, tuple(all_checks(walks)), tuple(walks), time.monotonic() - began)


def _check(target: str) -> None:
    """What needs no process to be seen. Raises HangwatchError."""
    place, colon, name = target.rpartition(":")
    if not (colon and place and name):
        raise HangwatchError(f"{target} is not FILE.py:NAME or MODULE:NAME, as in train.py:make_loader")
    if place.endswith(".py") and not Path(place).is_file():
        raise HangwatchError(f"there is no file {place}")


def _paces(plan: _Plan, ranks: int, deadline: float, progress: Progress) -> list[Walk]:
    """Short walks with more and more workers, while there is time and there are processors."""
    found: list[Walk] = []
    for workers in PACES:
        if workers > (os.cpu_count() or 1) or time.monotonic() > deadline - SPARE_S / 2:
            break
        progress(f"with {workers} workers", 3, 4)
        asked = {"rank": 0, "world": ranks, "workers": workers, "purpose": "pace", "batches": PACE_BATCHES}
        found += plan.walk([asked], 0.15)
    return found


class _Plan:
    def __init__(self, target: str, batches: int, seconds: float, environment: Mapping[str, str]) -> None:
        self._asked = {"target": target, "batches": batches, "epochs": 1, "purpose": "rank"}
        self._seconds = seconds
        # The interpreter may have hangwatch from elsewhere than its site-packages, as in a checkout.
        folders = [str(agent_folder().parent), *(part for part in sys.path if part)]
        path = [*environment.get("PYTHONPATH", "").split(os.pathsep), *folders]
        self._environment = {**environment, "PYTHONPATH": os.pathsep.join(part for part in path if part)}

    def walk(self, asked: Sequence[Mapping[str, object]], share: float) -> list[Walk]:
        """Walk at once, in `share` of the time."""
        seconds = self._seconds * share
        port = str(free_port())
        walkers = [_Walker({**self._asked, **each, "seconds": seconds}, self._environment, port) for each in asked]
        return [each.result(seconds) for each in walkers]


class _Walker:
    def __init__(self, asked: Mapping[str, object], environment: Mapping[str, str], port: str) -> None:
        self._asked = asked
        self._latest = b""
        self._errors: list[bytes] = []
        self._imported = threading.Event()
        self._began = time.monotonic()
        rank = {"RANK": asked["rank"], "LOCAL_RANK": asked["rank"], "WORLD_SIZE": asked["world"]}
        given = {name: str(value) for name, value in rank.items()} | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hangwatch_agent.doctor.loader", json.dumps(asked)],
            env={**environment, **given, "HANGWATCH_ENABLED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.strip() == BEGINS.encode():
                    self._began = time.monotonic()
                    self._imported.set()
                elif line.startswith(TOLD.encode()):
                    self._latest = line.removeprefix(TOLD.encode())
        self._imported.set()  # or it never will

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._errors = [*self._errors, line][-20:]

    def result(self, seconds: float) -> Walk:
        """What it has seen until it ended, or until `seconds` after its imports."""
        late = False
        self._imported.wait(max(0.0, self._began + IMPORT_S - time.monotonic()))
        deadline = self._began + seconds + SPARE_S
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = True
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)  # with its workers
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        for reader in self._readers:
            reader.join(1.0)
        return self._told(late or self._process.returncode == -signal.SIGALRM)

    def _told(self, late: bool) -> Walk:
        with contextlib.suppress(codec.WireError):
            return codec.loads(Walk, self._latest, lenient=True)
        rank, workers = self._asked["rank"], self._asked.get("workers") or 0
        assert isinstance(rank, int)
        assert isinstance(workers, int)
        lines = b"".join(self._errors).decode("utf-8", "replace").strip().splitlines()
        why = "it did not give a loader in time" if late else lines[-1][:300] if lines else "its process ended"
        return Walk(rank, workers, str(self._asked["purpose"]), problem=why)
