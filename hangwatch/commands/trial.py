"""One command under watch, for callers that want its verdict and not its end: the demo, the benchmark and the tests."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from hangwatch.model import Incident
from hangwatch.report import files

GRACE = 5.0  # seconds that the job is given to end by itself


class Trial:
    """`hangwatch run` on `command`, ended with all its processes when the block is left.

    Args:
        command: what to run, without `hangwatch run --`.
        report_dir: where its incidents are written; those that lie there already do not count.
        options: of `hangwatch run`, e.g. ("--stall-after", "4").
        output: where the job's output and the verdict go; None is where ours goes.
        environment: of the command; None is ours.
        watched: False runs the command without `hangwatch run`: it attaches by itself.
    """

    def __init__(
        self,
        command: Sequence[str],
        report_dir: Path,
        options: Sequence[str] = (),
        output: IO[bytes] | int | None = None,
        environment: dict[str, str] | None = None,
        *,
        watched: bool = True,
    ) -> None:
        self.report_dir = report_dir
        self._before = set(report_dir.glob("incident-*.json"))
        run = [sys.executable, "-m", "hangwatch", "run", "--report-dir", str(report_dir), *options, "--"]
        words = [*(run if watched else ()), *command]
        self.started = time.time()
        self.process = subprocess.Popen(words, stdout=output, stderr=output, env=environment)

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while it runs."""
        return self.process.poll()

    def reports(self) -> list[Path]:
        """The incidents that were written since the start, oldest first."""
        return sorted(set(self.report_dir.glob("incident-*.json")) - self._before)

    def incident(self, seconds: float) -> Incident | None:
        """The first incident, as soon as there is one; None if the command ends without one, or after `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = self.exit_code is not None  # asked first: the last report is written before the end
            found = self.reports()
            if found:
                return files.read(found[0])
            if ended:
                return None
            time.sleep(0.1)
        return None

    def end(self) -> None:
        """End the command and all that it has started; ranks that hang hear little."""
        from hangwatch_agent.watchdog.abort import end_below

        if self.exit_code is None:
            end_below(self.process.pid, GRACE)
        self.process.wait()

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
