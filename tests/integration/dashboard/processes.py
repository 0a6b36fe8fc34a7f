"""Real dashboard processes, as `hangwatch dashboard` starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from hangwatch.model import Job
from hangwatch.settings import Settings
from hangwatch_agent.dashboard_client.link import Link
from tests.ports import free_port

ROOT = Path(__file__).parents[3]


class Process:
    """A dashboard on a port of loopback. What it says goes to `log` if there is one, else where ours goes."""

    def __init__(self, database: str, port: int | None = None, log: IO[str] | None = None, **environment: str) -> None:
        self.port = port or free_port()
        self._told = False
        self.address = f"http://127.0.0.1:{self.port}"
        paths = os.pathsep.join(str(ROOT / part) for part in ("", "agent", "dashboard"))
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "hangwatch", "dashboard", "--port", str(self.port), "--database", database],
            env=os.environ | {"PYTHONPATH": paths} | environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        assert line.startswith("hangwatch: dashboard at "), line

    @property
    def pid(self) -> int:
        return self._popen.pid

    def get(self, path: str) -> Any:
        """The JSON at a path below /api/v1."""
        with urllib.request.urlopen(f"{self.address}/api/v1{path}", timeout=60) as answer:
            return json.load(answer)

    def kill(self) -> None:
        """SIGKILL: nothing is said goodbye to."""
        self._popen.kill()
        self._end()

    def tell_to_end(self) -> None:
        """SIGTERM, once."""
        if not self._told and self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
        self._told = True

    def stop(self) -> int:
        """SIGTERM. Returns the exit code."""
        self.tell_to_end()
        return self._end()

    def _end(self) -> int:
        code = self._popen.wait(60)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        return code


def link_to(address: str, spool: Path, node: str, job: str = "job") -> Link:
    return Link(Settings(dashboard=address), spool, Job(job, "resnet", None, started_at=time.time()), node=node)


def until(wanted: Callable[[], Any], timeout: float = 60.0) -> Any:
    """Waits until `wanted()` is true and returns it; errors of a dashboard that is away count as false."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            if found := wanted():
                return found
        except (OSError, IndexError, KeyError, ValueError):
            pass
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
