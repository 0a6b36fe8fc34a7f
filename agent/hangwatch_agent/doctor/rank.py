"""The process in a rank's place. It starts the parts, keeps their time, and brings home what they have found.

Nothing in it waits without a deadline, and the kernel ends it (SIGALRM) if that is not true.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hangwatch.doctor import launch
from hangwatch.doctor.model import RankFacts, Stage
from hangwatch.launchers import number
from hangwatch.wire import codec
from hangwatch_agent.rank import identity

MACHINE_S, GPUS_S, TALKS_S = 8.0, 14.0, 45.0
LEAST_S = 15.0
SPARE_S = 1.5


def main() -> int:
    """Returns 0 whatever was found: a launcher would end the other ranks for anything else."""
    remaining = seconds_left(os.environ, time.time())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(remaining) + 4)
    Probe(os.environ, time.monotonic() + remaining - SPARE_S).run()
    return 0


def seconds_left(environment: Mapping[str, str], now: float) -> float:
    """The time that is left to this rank; all of it where the clock of this host says what cannot be."""
    whole = float(environment.get(launch.SECONDS, "50"))
    left = float(environment.get(launch.UNTIL, "0") or 0) - now
    return left if min(LEAST_S, whole) <= left <= whole else whole


class Probe:
    def __init__(self, environment: Mapping[str, str], deadline: float) -> None:
        self._deadline = deadline
        self._home = Path(environment.get(launch.FOLDER, ""))
        self._facts: dict[str, Any] = describe(environment)
        self._stages: dict[str, Stage] = {}
        self._others: list[Any] = []
        self._sequence = 0
        self._news: queue.Queue[tuple[Part, dict[str, Any] | None]] = queue.Queue()

    def run(self) -> None:
        first = [Part("machine", MACHINE_S, self._news), Part("gpus", GPUS_S, self._news)]
        talks = Part("talks", TALKS_S, self._news, deadline=self._deadline)
        self._tell()
        self._listen(first)
        talks.give(self._record())
        self._listen([talks])
        self._facts["complete"] = True
        self._tell(last=True)

    def _listen(self, parts: list[Part]) -> None:
        """Take in what `parts` say until all of them have ended or have had their time."""
        waiting = set(parts)
        while waiting:
            now = time.monotonic()
            for late in [part for part in waiting if now >= part.deadline]:
                late.end()
                waiting.discard(late)
                self._unfinished(late)
            with contextlib.suppress(queue.Empty):
                part, said = self._news.get(timeout=0.1)
                if said is None:
                    waiting.discard(part)
                    part.end()
                    self._unfinished(part)
                else:
                    self._take(part, said)
            if self._home.is_dir() and self._changed:
                self._tell()

    _changed = False

    def _take(self, part: Part, said: dict[str, Any]) -> None:
        self._facts |= said.get("facts", {})
        self._others = said.get("others", self._others)
        if name := said.get("stage"):
            self._changed = True
            part.stage = "" if said.get("done") else name
            self._stages[name] = Stage(name, said.get("done", False), said.get("took_s", 0.0), said.get("problem", ""))

    def _unfinished(self, part: Part) -> None:
        """A part that ended in the middle of a stage, or said nothing at all, has a reason."""
        for name, each in list(self._stages.items()):
            if not each.done and name == part.stage:
                self._stages[name] = Stage(name, False, time.monotonic() - part.began, part.ending())
        if not part.spoke:
            self._stages[part.name] = Stage(part.name, False, time.monotonic() - part.began, part.ending())

    def _record(self) -> bytes:
        self._sequence += 1
        own = self._facts | {"stages": codec.encode(list(self._stages.values())), "sequence": self._sequence}
        return json.dumps(own | {"at": time.time()}).encode()

    def _tell(self, *, last: bool = False) -> None:
        """A file where the doctor's folder is seen, else lines on standard output; those at the end only."""
        self._changed = False
        text = b"[" + b",".join([self._record(), *(json.dumps(each).encode() for each in self._others)]) + b"]"
        if self._home.is_dir() and str(self._home) != ".":
            with contextlib.suppress(OSError):
                path = self._home / f"rank-{self._facts['rank']}-{platform.node()}-{os.getpid()}.json"
                temporary = path.with_suffix(".new")
                temporary.write_bytes(text)
                temporary.rename(path)
                return
        if last:
            for line in launch.marked_lines(text):
                os.write(1, line)


def describe(environment: Mapping[str, str]) -> dict[str, Any]:
    """The identity of this rank, by its environment."""
    known = number
    facts = RankFacts(
        rank=known(environment, "RANK") or 0,
        world_size=known(environment, "WORLD_SIZE") or 1,
        host=platform.node(),
        pid=os.getpid(),
        local_rank=known(environment, "LOCAL_RANK"),
        local_world_size=known(environment, "LOCAL_WORLD_SIZE"),
        node_rank=known(environment, "GROUP_RANK"),
        asked_host=environment.get("HANGWATCH_DOCTOR_HOST", ""),
        launcher=identity.launcher(environment),
        master=f"{environment.get('MASTER_ADDR', '')}:{environment.get('MASTER_PORT', '')}",
        store_elsewhere=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )
    described: dict[str, Any] = codec.encode(facts)
    return described


class Part:
    """A child with a deadline, in a process group of its own; what it says goes to `news`, None at its end."""

    def __init__(self, name: str, seconds: float, news: queue.Queue[Any], deadline: float | None = None) -> None:
        self.name, self.stage, self.spoke = name, "", False
        self.began = time.monotonic()
        self.deadline = min(self.began + seconds, deadline or self.began + seconds)
        self._errors = b""
        self._timed_out = False
        limit = str(self.deadline - self.began)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hangwatch_agent.doctor", name],
            env={**os.environ, "HANGWATCH_DOCTOR_PART_S": limit},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for target in (self._read, self._read_errors):
            threading.Thread(target=target, args=(news,), name=f"hangwatch-{name}", daemon=True).start()

    def give(self, line: bytes) -> None:
        """Write a line to its standard input, and close that."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.write(line + b"\n")
            self._process.stdin.close()

    def end(self) -> None:
        """Kill it with all that it has started. One that cannot die is left behind."""
        self._timed_out = self._process.poll() is None and time.monotonic() >= self.deadline
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)

    def ending(self) -> str:
        """Why it has come to no end of its own."""
        if self._timed_out:
            return f"no answer within {self.deadline - self.began:.0f} s"
        last = self._errors.decode("utf-8", "replace").strip().splitlines()
        code = self._process.returncode
        return last[-1][:300] if last else f"ended with code {code}"

    def _read(self, news: queue.Queue[Any]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    said = json.loads(line)
                    self.spoke = True
                    news.put((self, said))
        news.put((self, None))

    def _read_errors(self, news: queue.Queue[Any]) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._errors = (self._errors + line)[-4000:]
