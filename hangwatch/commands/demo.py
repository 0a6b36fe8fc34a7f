"""`hangwatch demo [CAUSE]`: a real job that hangs, under watch, with the verdict at the end."""

from __future__ import annotations

import argparse
import ast
import contextlib
import http.client
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from hangwatch.commands.did_you_mean import did_you_mean
from hangwatch.commands.trial import Trial
from hangwatch.errors import HangwatchError
from hangwatch.gallery import CASES, HERE, Case, cases, command
from hangwatch.ports import free_port

HELP = "run a training job that hangs, and see what hangwatch says of it"
EXAMPLES = ("hangwatch demo", "hangwatch demo --list", "hangwatch demo skipped-collective --culprit 2 --no-wait")
PATIENCE = 4.0  # --stall-after, so that causes without proof are told soon as well
NAME_WIDTH = max(len(case.name) for case in CASES)
NARROWEST = 60  # columns of a terminal in which the list still has room for its sentences
LONGEST = 180.0  # seconds until the demo gives up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cause", nargs="?", default="uneven-steps", help="a cause, or a job's name in --list (uneven-steps)"
    )
    parser.add_argument("--list", action="store_true", help="list the causes, and the jobs that show them")
    parser.add_argument("--ranks", type=int, metavar="N", help="world size")
    parser.add_argument("--culprit", type=int, metavar="RANK", help="which rank to make hang")
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the end of the demo ends its processes too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"hangwatch demo: {case.cause}: {case.script}, {arguments.ranks or case.ranks} ranks, by {case.launcher}")
    with _dashboard(wanted=not arguments.no_dashboard) as address:
        return _watched(words, address, arguments, hangs=not arguments.healthy and case.status != "warned")


def _list() -> int:
    from hangwatch.catalogue import CATALOGUE

    width = _width()
    print(
        _within("hangwatch demo CAUSE runs the first job of a cause, hangwatch demo JOB that one.", width, 0),
        end="\n\n",
    )
    for cause in CATALOGUE:
        found = cases(cause.id)
        if found:
            warned = " (a warning: the job goes on)" if all(case.status == "warned" for case in found) else ""
            print(_within(f"{cause.id}: {cause.title}{warned}", width, 2))
        print("".join(_lines(found, width)), end="")
    return 0


def _width() -> int | None:
    """That of the terminal, or of COLUMNS; None where the list goes elsewhere: a job stays on one line, for grep."""
    told = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return max(shutil.get_terminal_size().columns, NARROWEST) if told else None


def _lines(found: Sequence[Case], width: int | None) -> Iterator[str]:
    """The jobs of a cause. A reader is told once what several have in common; a line for grep holds all of it."""
    before = ""
    for case in found:
        says, script = sentence(case), " ".join((case.script, *case.args))
        shared = width is not None and says == before and bool(case.variant)
        words = " ".join(filter(None, ("…" if shared else says, case.variant)))
        text = f"    {case.name:<{NAME_WIDTH}} {words} ({script}, {case.ranks} ranks, {case.launcher})"
        before = says
        yield _within(text, width, NAME_WIDTH + 5) + "\n"


def _within(text: str, width: int | None, indent: int) -> str:
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_on_hyphens=False) if width else text


def sentence(case: Case) -> str:
    """What a script does: the first sentence of its docstring."""
    text = ast.get_docstring(ast.parse((HERE / case.script).read_text(encoding="utf-8"))) or ""
    first = " ".join(text.split("\n\n")[0].split())
    return first if first.endswith(".") else f"{first}."


def _chosen(cause: str) -> Case:
    found = cases(cause) or tuple(case for case in CASES if case.name == cause)
    if not found:
        known = {name for case in CASES for name in (case.cause, case.name)}
        raise HangwatchError(f"no job shows {cause!r}; {did_you_mean(cause, known)}`hangwatch demo --list` names all")
    return found[0]


def _watched(words: list[str], address: str, arguments: argparse.Namespace, *, hangs: bool) -> int:
    options = ["--stall-after", str(PATIENCE), *(["--dashboard", address] if address else [])]
    with Trial(words, Path(arguments.report_dir), options) as trial:
        if trial.incident(LONGEST) is None:
            return _nothing(trial, hangs=hangs)
        time.sleep(1.0)  # the terminal, the HTML and the dashboard get it in the same moment
        print(f"\nhangwatch demo: read the report again with: hangwatch report {trial.reports()[0]}")
        if address:
            print(f"hangwatch demo: the dashboard is at {address}")
        if not arguments.no_wait and trial.exit_code is None:
            _wait_for_the_user()
        return 0


def _nothing(trial: Trial, *, hangs: bool) -> int:
    if trial.exit_code is None:
        raise HangwatchError(f"no verdict within {LONGEST:.0f} s; please report this as a bug")
    print(f"hangwatch demo: the job ended with code {trial.exit_code}, and there was nothing to report")
    return 1 if hangs else 0


def _wait_for_the_user() -> None:
    print("hangwatch demo: the job still hangs, so that you can look at it; Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


@contextlib.contextmanager
def _dashboard(*, wanted: bool) -> Iterator[str]:
    """A dashboard of our own on a free port; gives its address, or "" where there is none to be had."""
    if not wanted or importlib.util.find_spec("fastapi") is None:
        if wanted:
            print("hangwatch demo: no dashboard, for FastAPI is not installed (in a clone: pip install '.[dashboard]')")
        yield ""
        return
    port = free_port()
    words = [sys.executable, "-m", "hangwatch", "dashboard", "--port", str(port)]
    with (
        tempfile.TemporaryDirectory(prefix="hangwatch-demo-") as folder,  # a user's own dashboard is not for demos
        tempfile.TemporaryFile() as log,  # and its log is not what the demo is about
    ):
        service = subprocess.Popen([*words, "--database", f"sqlite:///{folder}/demo.db"], stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}" if _answers(service, port, log) else ""
        finally:
            service.terminate()
            service.wait()


def _answers(service: subprocess.Popen[bytes], port: int, log: IO[bytes], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and service.poll() is None:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.client.OK
        time.sleep(0.1)
    log.seek(0)
    said = log.read().decode(errors="replace").strip().splitlines()
    why = said[-1] if said else "it said nothing"
    print(f"hangwatch demo: the dashboard did not start; going on without it ({why})")
    return False
