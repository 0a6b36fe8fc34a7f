"""Plays one case under `hangwatch run` and says what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hangwatch.commands.trial import Trial
from hangwatch.model import GpuFacts, Incident
from hangwatch.report import files

from .cases import Case
from .machine import find_py_spy
from .results import Result

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Several ranks on one GPU, by sockets over loopback: nothing that needs a second GPU, a peer or another network.
RECIPE = {
    "CUDA_VISIBLE_DEVICES": "0", "NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0",
    "NCCL_CUMEM_ENABLE": "0", "NCCL_MAX_NCHANNELS": "1",
}  # fmt: skip
RECIPES = {"hostid": {"GPU_RECIPE": "hostid"}, "multirank": {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}}
STALL_AFTER = "10"
SETTLED_S = 5.0  # after the first verdict, for what sharpens it
TOLD = ("torch's dump", "NCCL's RAS service")


@dataclass(frozen=True)
class Played:
    """One run. `gpus` is what NVML said, `waits` the native functions that hosts waited in, with the CPU they used."""

    result: Result
    gpus: tuple[GpuFacts, ...] = ()
    waits: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Player:
    """Runs train.py, or another program, with so many ranks; reports and outputs are kept in `keep`, if it is given.

    Several may run at once: `seat` says which of them this one is.
    """

    ranks: int = 4
    rehearse: bool = False
    recipe: str = "hostid"
    keep: Path | None = None
    seat: int = 0

    def command(self, case: Case, *more: str) -> list[str]:
        device = ["--device", "cpu"] if self.rehearse else []
        fault = [str(HERE / "train.py"), "--fault", case.fault, *device]
        program = fault if case.script is None else [str(case.script)]
        train = [str(HERE / "rank.py"), *program, *case.arguments, *more]
        return [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={self.ranks}", *train),
        ]

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "agent"), os.environ.get("PYTHONPATH", "")]))
        recipe = {} if self.rehearse else RECIPE | RECIPES[self.recipe] | {"GPU_SEAT": str(self.seat)}
        ours = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HANGWATCH_LOG_LOOKS": "1"}
        return {**os.environ, **ours, **recipe, **extra}

    def play(self, case: Case) -> Played:
        """Run a case until its verdict, or its end."""
        with tempfile.TemporaryDirectory() as folder, (Path(folder) / "output").open("w+b") as output:
            reports, options = Path(folder) / "reports", ("--stall-after", STALL_AFTER)
            environment = self.environment(case.environment)
            with Trial(self.command(case), reports, options, output, environment) as trial:
                incident = trial.incident(case.end_s)
                if incident is not None:
                    self._settle(trial, case)
                    incident = files.read(trial.reports()[0])
                code = trial.exit_code
                if incident is None and code is None:
                    self._note_stacks(case, trial.process.pid)
            output.seek(0)
            said = output.read().decode("utf-8", "replace")
            kept = sorted(path.name for path in reports.glob("torch-dumps-*/rank_*"))
            self._keep(case, reports, said)
        return self._played(case, incident, code if incident is None else None, kept, said)

    def _note_stacks(self, case: Case, below: int) -> None:
        """Where the processes of a job stand that should have got a verdict by now."""
        py_spy = find_py_spy()
        if self.keep is None or py_spy is None:
            return
        for process in psutil.Process(below).children(recursive=True):
            command = [py_spy, "dump", "--native", "--pid", str(process.pid)]
            with contextlib.suppress(psutil.Error, subprocess.SubprocessError):
                said = f"{process.pid} {process.status()} {process.cpu_times()} {process.cpu_percent(0.2)} %\n"
                dumped = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
                with (self._folder(case) / "stacks").open("a", encoding="utf-8") as file:
                    file.write(f"{said}{dumped.stdout}{dumped.stderr}\n")

    def _folder(self, case: Case) -> Path:
        """Where what a case has shown is kept."""
        assert self.keep is not None
        folder = self.keep / re.sub(r"[^a-z0-9]+", "-", case.title)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _keep(self, case: Case, reports: Path, output: str) -> None:
        if self.keep is None:
            return
        to = self._folder(case)
        if reports.exists():  # an incident was written
            shutil.copytree(reports, to, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.html"))
        (to / "output").write_text(output, encoding="utf-8")

    def _settle(self, trial: Trial, case: Case) -> None:
        until = time.monotonic() + (case.end_s if case.until_the_end else SETTLED_S)
        while time.monotonic() < until and trial.exit_code is None:
            time.sleep(0.2)

    def _played(self, case: Case, incident: Incident | None, code: int | None, kept: list[str], output: str) -> Played:
        if incident is None:
            well = code == 0
            note = "" if well else f"exit code {code}: {_last_line(output)}" if code else "it did not end"
            return Played(Result(case.title, case.causes, case.healthy and well, note=note))
        verdict = incident.verdict
        culprits = tuple(sorted({*verdict.blamed}))
        any_of_two = case.majority and self.ranks == 2
        right = verdict.cause in case.causes and (any_of_two or case.culprits in (None, culprits))
        notes = [f"{note.source}: {note.detail or 'answered'}" for note in incident.capture if note.source in TOLD]
        notes += [f"kept: {', '.join(kept)}"] if kept else []
        result = Result(
            case.title,
            case.causes,
            right,
            verdict.cause,
            str(verdict.certainty),
            str(verdict.hang or ""),
            culprits,
            incident.detected_after_s,
            "" if right else verdict.summary,
            tuple(_short(note) for note in dict.fromkeys(notes)),
        )
        gpus = next((node.gpus for node in incident.nodes if node.gpus), ())
        return Played(result, gpus, _waits(incident))

    def speed(self, steps: int, *, watched: bool, timed: bool) -> float | None:
        """Steps per second of a healthy run."""
        command = self.command(Case("none"), "--steps", str(steps))
        run = [sys.executable, "-m", "hangwatch", "run", "--"] if watched else []
        environment = self.environment({"TORCH_NCCL_ENABLE_TIMING": "1"} if timed else {})
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [*run, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
            )
        found = re.search(r"steps/s ([\d.]+)", done.stdout)
        return float(found[1]) if found else None

    def turns(self) -> dict[str, float]:
        """What in_turns.py measures; empty where it failed."""
        device = "cpu" if self.rehearse else "cuda"
        command = [sys.executable, str(HERE / "in_turns.py"), "--device", device]
        done = subprocess.run(command, env=self.environment({}), capture_output=True, text=True, timeout=300)
        lines = done.stdout.splitlines()
        return json.loads(lines[-1]) if done.returncode == 0 and lines else {}


def _waits(incident: Incident) -> dict[str, float]:
    """By native function in which a host waits for its device, the CPU seconds that it uses in a second."""
    waits: dict[str, float] = {}
    for rank in incident.ranks:
        main = next((stack.frames for stack in rank.stacks if stack.main), ())
        found = next((frame.function for frame in main if frame.native and "ynchronize" in frame.function), None)
        used = rank.process.cpu_delta_s if rank.process is not None else None
        if found is not None and used is not None:
            waits[found] = max(used, waits.get(found, 0.0))
    return waits


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "no output"


def _short(note: str) -> str:
    """Without the paths of a temporary folder and of a run."""
    return re.sub(r"\S*/(torch-dumps-)[^/\s]+", r"\1RUN", note)[:200]
