"""Runs a program plain and under hangwatch, and says what differs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ports import free_port

HERE = Path(__file__).parent
RANK, LAUNCH = HERE / "rank.py", HERE / "launch.py"
RUN = [sys.executable, "-m", "hangwatch", "run", "--"]
OURS = re.compile(r"^hangwatch: .*\n(?:\n(?:  .*\n|\n)*?  report  .*\n)?", re.MULTILINE)  # a line, or a whole verdict
NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?")
PLAIN = "plain"
MANNERS = ("run", "attach")  # of being watched
LAUNCHERS = ("processes", "torchrun", "spawn")
AHEAD, HOUR_S = "clock.ahead", 3600
STANDSTILL_S = 12.0  # a stopped rank is reported some seconds after it was stopped
Chaos = Callable[["subprocess.Popen[str]", Path], None]


@dataclass
class Observed:
    """What a run has shown: by rank and name; what is random or ours is left out."""

    facts: dict[str, Any] = field(default_factory=dict)
    noise: str = ""  # what hangwatch and the launcher said

    def differences(self, other: Observed) -> list[str]:
        """The names of what is not equal in `other`."""
        return sorted(name for name in {*self.facts, *other.facts} if self.facts.get(name) != other.facts.get(name))


def observe(program: str, manner: str = PLAIN, launcher: str = "processes", chaos: str = "") -> Observed:
    """Run `program` once. `chaos` names what is done to hangwatch meanwhile."""
    with tempfile.TemporaryDirectory(prefix="harmless-") as name:
        folder = Path(name)
        command = [*(RUN if "run" in manner else []), *launched(launcher, program, folder)]
        with chaotic(chaos, folder) as (environment, act):
            process = subprocess.Popen(
                command, cwd=folder, env=surroundings(manner, folder) | environment,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            over = threading.Event()
            worker = threading.Thread(target=_repeat, args=(over, lambda: act(process, folder / "run")))
            worker.start()
            try:
                noise = process.communicate(timeout=300)[1]
            finally:
                over.set()
                worker.join()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return Observed(_facts(folder, process.returncode if chaos != "watchdog killed" else 0), noise)


def launched(launcher: str, program: str, folder: Path) -> list[str]:
    ranks = [str(RANK), program, str(folder)]
    if launcher == "torchrun":
        run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        return [*run, "--redirects", "3", "--log-dir", str(folder / "logs"), *ranks]
    return [
        sys.executable,
        *([str(LAUNCH)] if launcher == "processes" else []),
        *ranks,
        *(["--spawn"] * (launcher == "spawn")),
    ]


def surroundings(manner: str, folder: Path) -> dict[str, str]:
    """The environment of a run. hangwatch's folder is its own, so that nothing else on the machine is touched."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HANGWATCH_", "COVERAGE"))}
    ours = {"HANGWATCH_RUN_DIR": str(folder / "run"), "HANGWATCH_REPORT_DIR": str(folder / "hangwatch-reports")}
    attach = {"HARMLESS_ATTACH": "1"} if "attach" in manner else {}
    rendezvous = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    return kept | ours | rendezvous | attach


def _facts(folder: Path, code: int) -> dict[str, Any]:
    found: dict[str, Any] = {"exit code": code}
    for path in sorted(folder.glob("facts-*.json")):
        rank = path.stem.rpartition("-")[2]
        facts = json.loads(path.read_text().replace(folder.name, "FOLDER"))
        found |= {f"{name} of rank {rank}": value for name, value in facts.items()}
    for path in [*folder.glob("out-*"), *folder.glob("err-*")]:
        lines = OURS.sub("", path.read_text().replace(folder.name, "FOLDER")).splitlines()
        kind, _, rank = path.name.partition("-")
        said = lines if kind == "out" else [NUMBERS.sub("N", line) for line in lines]
        found[f"{'printed' if kind == 'out' else 'errors'} by rank {rank}"] = said
    return found


# ---------------------------------------------------------------- chaos


@contextlib.contextmanager
def chaotic(name: str, folder: Path) -> Iterator[tuple[dict[str, str], Chaos]]:
    """What is added to the environment, and what is done every tenth of a second."""
    with SURROUNDINGS.get(name, _as_it_is)(folder) as environment:
        yield environment, CHAOS.get(name, _nothing)


@contextlib.contextmanager
def _as_it_is(folder: Path) -> Iterator[dict[str, str]]:
    yield {}


@contextlib.contextmanager
def _full_disk(folder: Path) -> Iterator[dict[str, str]]:
    (folder / "run").mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "none", folder / "run"], check=True)
    try:
        yield {}
    finally:
        subprocess.run(["umount", "--lazy", folder / "run"], check=True)


@contextlib.contextmanager
def _full_everywhere(folder: Path) -> Iterator[dict[str, str]]:
    """Neither the folder of the boards nor the temporary folder has room for one."""
    with _full_disk(folder):
        (folder / "run" / "tmp").mkdir(mode=0o700)
        yield {"TMPDIR": str(folder / "run" / "tmp")}


@contextlib.contextmanager
def _other_clock(folder: Path) -> Iterator[dict[str, str]]:
    """A library that shifts the time of day of every process of the run."""
    ahead = folder / AHEAD
    ahead.write_bytes(bytes(8))
    yield {"LD_PRELOAD": _library("clock", folder), "CLOCK_AHEAD": str(ahead)}


@contextlib.contextmanager
def _no_tracing(folder: Path) -> Iterator[dict[str, str]]:
    yield {"LD_PRELOAD": _library("deny", folder), "DENY": "tracing"}


@contextlib.contextmanager
def _no_large_files(folder: Path) -> Iterator[dict[str, str]]:
    yield {"LD_PRELOAD": _library("deny", folder), "DENY": "large files"}


def _library(name: str, folder: Path) -> str:
    made = folder / f"{name}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", made, HERE / f"{name}.c", "-ldl"], check=True)
    return str(made)


@contextlib.contextmanager
def _deaf_dashboard(folder: Path) -> Iterator[dict[str, str]]:
    """It takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {"HANGWATCH_DASHBOARD": f"http://127.0.0.1:{server.getsockname()[1]}"}


@contextlib.contextmanager
def _no_dashboard(folder: Path) -> Iterator[dict[str, str]]:
    yield {"HANGWATCH_DASHBOARD": "http://127.0.0.1:9"}


def _repeat(over: threading.Event, act: Callable[[], None]) -> None:
    while not over.wait(0.1):
        with contextlib.suppress(OSError):
            act()


def _stop(process: subprocess.Popen[str], run: Path) -> None:
    """Stopped four tenths of the time."""
    os.kill(process.pid, signal.SIGSTOP if secrets.randbelow(10) < 4 else signal.SIGCONT)


def _kill(process: subprocess.Popen[str], run: Path) -> None:
    if list(run.glob("*/rank-*.board")):
        process.kill()


def _remove(process: subprocess.Popen[str], run: Path) -> None:
    for board in run.glob("*/*"):
        board.unlink()


def _scribble(process: subprocess.Popen[str], run: Path) -> None:
    for board in run.glob("*/rank-*.board"):
        with board.open("r+b") as file:
            for _ in range(100):
                file.seek(secrets.randbelow(max(1, board.stat().st_size - 64)))
                file.write(secrets.token_bytes(64))


def _nothing(process: subprocess.Popen[str], run: Path) -> None:
    return None


def _set_clock(process: subprocess.Popen[str], run: Path) -> None:
    """An hour back, as it is, or an hour ahead."""
    seconds = HOUR_S * (secrets.randbelow(3) - 1)
    with (run.parent / AHEAD).open("r+b") as file:  # never shorter: it is mapped
        file.write(seconds.to_bytes(8, sys.byteorder, signed=True))


def _signal(process: subprocess.Popen[str], run: Path) -> None:
    """What a terminal sends when its window changes."""
    os.kill(process.pid, signal.SIGWINCH)


def _stand_still(process: subprocess.Popen[str], run: Path) -> None:
    """One rank is stopped, once, for as long as it takes to be noticed: only then is evidence taken."""
    boards, told = sorted(run.glob("*/rank-*.board")), run.parent / "stood still"
    if len(boards) < 2 or told.exists():
        return
    told.touch()
    pid = int(boards[0].stem.split("-")[1])
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STANDSTILL_S)
    os.kill(pid, signal.SIGCONT)


CHAOS: dict[str, Chaos] = {
    "watchdog stopped": _stop,
    "watchdog killed": _kill,
    "boards removed": _remove,
    "boards scribbled over": _scribble,
    "clock set": _set_clock,
    "signals": _signal,
    "a standstill": _stand_still,
    "tracing denied": _stand_still,
}
SURROUNDINGS: dict[str, Callable[[Path], AbstractContextManager[dict[str, str]]]] = {
    "disk full": _full_disk,
    "shared memory and disk full": _full_everywhere,
    "large files denied": _no_large_files,
    "tracing denied": _no_tracing,
    "clock set": _other_clock,
    "dashboard deaf": _deaf_dashboard,
    "dashboard gone": _no_dashboard,
}
DISASTERS = tuple(dict.fromkeys([*CHAOS, *SURROUNDINGS]))
