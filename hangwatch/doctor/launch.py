"""Starts the job's own command with our probe in each rank's place, and hears what the ranks have found.

The command inherits a folder at the front of PYTHONPATH whose `sitecustomize` takes over every Python process that is
a rank, before a line of the user's script runs. Two ways lead back: files in a folder of ours, where the ranks see it,
and marked lines on their standard output, which every launcher brings home from other hosts. The job's own store is
the third: each rank tells the others, and the first rank of a host passes all of it on.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import tempfile
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from hangwatch.doctor import endpoint
from hangwatch.doctor.model import Launch, RankFacts
from hangwatch.errors import HangwatchError
from hangwatch.wire import codec

FOLDER, SECONDS, TOKEN = "HANGWATCH_DOCTOR_DIR", "HANGWATCH_DOCTOR_SECONDS", "HANGWATCH_DOCTOR_TOKEN"
UNTIL, STEP = "HANGWATCH_DOCTOR_UNTIL", "HANGWATCH_DOCTOR_STEP"
MARKED = re.compile(rb"hangwatch-doctor:([0-9a-f]{8}):(\d+)/(\d+):([A-Za-z0-9+/=]*)")
LAST_LINES = 20
EVERY_S = 0.1
SPARE_S = 4.0  # of the time, for what comes after the ranks: their launcher's end and the verdict
LEAST_S = 10.0

Progress = Callable[[Sequence[RankFacts]], None]


def silent(facts: Sequence[RankFacts]) -> None:
    """No display."""


def launched(
    command: Sequence[str],
    seconds: float,
    progress: Progress = silent,
    *,
    environment: Mapping[str, str] | None = None,
    expected: int | None = None,
    asked_hosts: Sequence[str] = (),
) -> tuple[tuple[RankFacts, ...], Launch]:
    """Run `command` for at most `seconds`, and return what its ranks have found and how it went.

    Nothing that it has started on this host is left when this returns; on other hosts the probes end themselves.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hangwatch-doctor-") as folder:
        token = secrets.token_hex(16)
        inherited = os.environ if environment is None else environment
        place = endpoint.named(command)
        run = _Run(Path(folder), token, began + seconds - SPARE_S, progress)
        ours = _environment(inherited, folder, token, max(LEAST_S, seconds - SPARE_S))
        problem, code = run(command, ours)
        facts = run.facts()
    trouble = endpoint.problem(place) if place and len(facts) < (expected or 1) else ""
    took = time.monotonic() - began
    output = tuple(run.output)
    return facts, Launch(
        tuple(command), code, took, problem, output, place, trouble, expected or None, tuple(asked_hosts)
    )


def agent_folder() -> Path:
    """Where the package of the probes lies. Raises HangwatchError where it is not installed."""
    spec = find_spec("hangwatch_agent")
    if spec is None or not spec.submodule_search_locations:
        raise HangwatchError("hangwatch_agent is not installed beside hangwatch; install the package `hangwatch` again")
    return Path(next(iter(spec.submodule_search_locations)))


def _environment(inherited: Mapping[str, str], folder: str, token: str, seconds: float) -> dict[str, str]:
    takeover = str(agent_folder() / "doctor" / "takeover")
    path = [takeover, *inherited.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(part for part in path if part),
        FOLDER: folder,
        TOKEN: token,
        SECONDS: str(seconds),
        UNTIL: str(time.time() + seconds),
        STEP: inherited.get("SLURM_STEP_ID", ""),
        "HANGWATCH_ENABLED": "0",
    }


class _Run:
    def __init__(self, folder: Path, token: str, deadline: float, progress: Progress) -> None:
        self.output: deque[str] = deque(maxlen=LAST_LINES)
        self._folder, self._token, self._deadline, self._progress = folder, token, deadline, progress
        self._from_lines: list[RankFacts] = []
        self._parts: dict[bytes, dict[int, bytes]] = {}

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, int | None]:
        """Returns why it could not be started, and its exit code; None where it had to be ended."""
        try:
            process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot run {command[0]}: {error.strerror}; is it installed, and on PATH?", None
        reader = threading.Thread(target=self._read, args=(process,), name="hangwatch-doctor-output", daemon=True)
        reader.start()
        try:
            code = self._wait(process)
        finally:
            end_all(self._token, process)
        reader.join(1.0)  # a process that cannot die may hold the pipe open
        return "", code

    def _wait(self, process: subprocess.Popen[bytes]) -> int | None:
        while process.poll() is None and time.monotonic() < self._deadline:
            self._progress(self.facts())
            time.sleep(EVERY_S)
        return process.returncode

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(OSError, ValueError), process.stdout:
            for line in process.stdout:
                if (marked := MARKED.search(line)) is not None:
                    self._gather(*marked.groups())
                elif text := line.decode("utf-8", "replace").rstrip():
                    self.output.append(text[:500])

    def _gather(self, name: bytes, number: bytes, count: bytes, text: bytes) -> None:
        parts = self._parts.setdefault(name, {})
        parts[int(number)] = text
        if len(parts) == int(count):
            with contextlib.suppress(ValueError, binascii.Error, zlib.error):
                whole = base64.b64decode(b"".join(parts[index] for index in sorted(parts)))
                self._from_lines += read_facts(zlib.decompress(whole))

    def facts(self) -> tuple[RankFacts, ...]:
        """The most complete word of every rank, by rank. Two processes of one rank are both there."""
        newest: dict[tuple[int, str, int], RankFacts] = {}
        for each in (*self._from_files(), *tuple(self._from_lines)):
            key = (each.rank, each.host, each.pid)
            if key not in newest or newest[key].sequence <= each.sequence:
                newest[key] = each
        return tuple(newest[key] for key in sorted(newest))

    def _from_files(self) -> Iterator[RankFacts]:
        for path in self._folder.glob("rank-*.json"):
            with contextlib.suppress(OSError, ValueError):
                yield from read_facts(path.read_bytes())


def read_facts(text: bytes) -> list[RankFacts]:
    """The facts in a JSON list, as ranks write it. Raises ValueError."""
    return [codec.decode(RankFacts, each, lenient=True) for each in json.loads(text)]


def marked_lines(text: bytes) -> Iterator[bytes]:
    """`text` as lines that survive a launcher's labels, and that are written whole: a pipe takes 4096 bytes at once."""
    coded = base64.b64encode(zlib.compress(text))
    pieces = [coded[at : at + 3000] for at in range(0, len(coded), 3000)]
    name = secrets.token_hex(4).encode()
    for number, piece in enumerate(pieces):
        yield b"hangwatch-doctor:%s:%d/%d:%s\n" % (name, number, len(pieces), piece)


def end_all(token: str, process: subprocess.Popen[bytes]) -> None:
    """Kill the command with all that has inherited our token. What cannot die is not waited for."""
    for _ in range(3):  # what was being started while we looked
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        found = list(_with_token(token))
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            break
        time.sleep(0.1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


def _with_token(token: str) -> Iterator[int]:
    wanted = f"{TOKEN}={token}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0") and _lives(path.parent):
                yield int(path.parent.name)


def _lives(process: Path) -> bool:
    with contextlib.suppress(OSError):
        return (process / "stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False
