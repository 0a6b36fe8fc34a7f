"""`hangwatch demo [CAUSE]`: a real job that hangs, under watch, with the verdict at the end."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib.util
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hangwatch.errors import HangwatchError
from hangwatch.gallery import CASES, Case, cases, command

HELP = "run a training job that hangs, and see what hangwatch says of it"
PATIENCE = 4.0  # --stall-after, so that causes without proof are told soon as well
LONGEST = 180.0  # seconds until the demo gives up
GRACE = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cause", nargs="?", default="uneven-steps", help="a cause of the catalogue (uneven-steps)")
    parser.add_argument("--list", action="store_true", help="list the causes and their scripts")
    parser.add_argument("--ranks", type=int, metavar="N", help="world size")
    parser.add_argument("--culprit", type=int, metavar="RANK", help="the rank that shall be at fault")
    parser.add_argument("--healthy", action="store_true", help="run the look-alike that does not hang")
    parser.add_argument("--no-wait", action="store_true", help="end the job and the dashboard after the verdict")
    parser.add_argument("--no-dashboard", action="store_true", help="do without the dashboard")
    parser.add_argument("--report-dir", metavar="DIR", default="hangwatch-reports", help="where the report is written")


def run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        return _list()
    case = _chosen(arguments.cause)
    if importlib.util.find_spec("torch") is None:
        raise HangwatchError("the demo trains a model: install torch in this environment first (pip install torch)")
    try:
        words = command(case, ranks=arguments.ranks, culprit=arguments.culprit, healthy=arguments.healthy)
    except ValueError as error:
        raise HangwatchError(str(error)) from error
    print(f"hangwatch demo: {case.cause}: {case.script}, {arguments.ranks or case.ranks} ranks, by {case.launcher}")
    with _dashboard(wanted=not arguments.no_dashboard) as address:
        return _watched(words, address, arguments)


def _list() -> int:
    for case in CASES:
        print(f"{case.cause:28} {case.script:36} {case.ranks} ranks, {case.launcher}")
    return 0


def _chosen(cause: str) -> Case:
    found = cases(cause)
    if not found:
        known = ", ".join(sorted({case.cause for case in CASES}))
        raise HangwatchError(f"no script for {cause!r}; there are: {known}")
    return found[0]


def _watched(words: list[str], address: str, arguments: argparse.Namespace) -> int:
    reports = Path(arguments.report_dir)
    before = set(reports.glob("incident-*.json"))
    options = ["--report-dir", str(reports), "--stall-after", str(PATIENCE)]
    options += ["--dashboard", address] if address else []
    job = subprocess.Popen([sys.executable, "-m", "hangwatch", "run", *options, "--", *words])
    try:
        found = _verdict(job, reports, before)
        if found is None:
            print(f"hangwatch demo: the job ended with code {job.poll()}, and nothing was wrong")
            return 0 if arguments.healthy else 1
        print(f"\nhangwatch demo: the report is {found} (again: hangwatch report {found})")
        if address:
            print(f"hangwatch demo: the dashboard is at {address}")
        if not arguments.no_wait and job.poll() is None:
            _wait_for_the_user()
        return 0
    finally:
        _end(job)


def _verdict(job: subprocess.Popen[bytes], reports: Path, before: set[Path]) -> Path | None:
    """The first new report, or None if the job ends without one."""
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline:
        ended = job.poll() is not None
        new = sorted(set(reports.glob("incident-*.json")) - before)
        if new:
            time.sleep(1.0)  # the terminal and the dashboard hear of it in the same moment
            return new[0]
        if ended:
            return None
        time.sleep(0.2)
    raise HangwatchError(f"no verdict within {LONGEST:.0f} s; please report this as a bug")


def _wait_for_the_user() -> None:
    print("hangwatch demo: the job still hangs, so that you can look at it; Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


def _end(job: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started; ranks that hang hear little."""
    from hangwatch_agent.abort import end_tree

    if job.poll() is None:
        end_tree(job.pid, GRACE)
    job.wait()


@contextlib.contextmanager
def _dashboard(*, wanted: bool) -> Iterator[str]:
    """A dashboard of our own on a free port; gives its address, or "" where there is none to be had."""
    if not wanted or importlib.util.find_spec("fastapi") is None:
        if wanted:
            print("hangwatch demo: no dashboard, for FastAPI is not installed (pip install 'hangwatch[dashboard]')")
        yield ""
        return
    port = _free_port()
    service = subprocess.Popen([sys.executable, "-m", "hangwatch", "dashboard", "--port", str(port)])
    try:
        yield f"http://127.0.0.1:{port}" if _answers(service, port) else ""
    finally:
        _end(service)


def _answers(service: subprocess.Popen[bytes], port: int, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and service.poll() is None:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
            connection.request("GET", "/api/v1/health")
            return connection.getresponse().status == http.client.OK
        time.sleep(0.1)
    print("hangwatch demo: the dashboard did not start; going on without it")
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
