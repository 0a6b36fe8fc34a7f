"""`hangwatch doctor`: what hangwatch needs on this machine, and with a command behind --, what the job needs."""

from __future__ import annotations

import argparse
import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hangwatch.errors import HangwatchError

if TYPE_CHECKING:
    from hangwatch.commands.checks import Check
    from hangwatch.doctor import Report
    from hangwatch.settings import Settings

HELP = "check a job before it trains: its hosts, ranks, links and GPUs, or its data loader; alone, what hangwatch needs"
EXAMPLES = (
    "hangwatch doctor",
    "hangwatch doctor -- torchrun --nproc-per-node 8 train.py",
    "hangwatch doctor loader train.py:make_loader --ranks 4",
)
LEAST_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "hangwatch doctor [options] [-- COMMAND ...]\n       hangwatch doctor [options] loader FILE.py:NAME|MODULE:NAME"
    )
    parser.add_argument("--report-dir", metavar="DIR", help="the report directory to check (hangwatch-reports)")
    parser.add_argument("--dashboard", metavar="URL", help="the dashboard to reach, where there is one")
    parser.add_argument("--nproc", type=int, default=0, metavar="N", help="check N ranks without a command")
    parser.add_argument("--hosts", default="", metavar="A,B", help="that many ranks on each of these hosts, over ssh")
    parser.add_argument("--remote-shell", metavar="COMMAND", help="what reaches a host, in place of ssh")
    parser.add_argument("--seconds", type=float, metavar="S", help="the time for everything (60; of a loader 30)")
    parser.add_argument("--json", metavar="OUT", help="write the result as JSON; - is standard output")
    parser.add_argument("--html", metavar="OUT", help="write the result as one HTML file; - is standard output")
    loaders = parser.add_argument_group("of a loader")
    loaders.add_argument("what", nargs="*", metavar="loader NAME", help="walk the DataLoader that NAME is or returns")
    loaders.add_argument("--ranks", type=int, default=2, metavar="N", help="for so many ranks at once (2)")
    loaders.add_argument("--workers", type=int, metavar="N", help="with 0 and with N workers (its own, or 2)")
    loaders.add_argument("--batches", type=int, default=200, metavar="N", help="at most so many of each epoch (200)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.what:
        return _loader(arguments)
    if arguments.seconds is not None and arguments.seconds < LEAST_S:
        raise HangwatchError(f"--seconds {arguments.seconds:g} is too short; give it at least {LEAST_S:g}")
    if arguments.command or arguments.nproc or arguments.hosts:
        return _job(arguments)
    if arguments.json or arguments.html:
        raise HangwatchError("--json and --html are for a job's check: put its command behind --, or give --nproc")
    return _ours(arguments)


def _ours(arguments: argparse.Namespace) -> int:
    from hangwatch.commands import checks, doctor_display

    found = list(checks.all_of_them(_settings(arguments)))
    doctor_display.show_ours(found)
    return 1 if _lacking(found) else 0


def _lacking(found: list[Check]) -> bool:
    return any(check.state == "missing" for check in found)


def _settings(arguments: argparse.Namespace) -> Settings:
    from hangwatch.settings import Settings

    return Settings.of_options(report_dir=arguments.report_dir, dashboard=arguments.dashboard)


def _job(arguments: argparse.Namespace) -> int:
    from hangwatch import doctor
    from hangwatch.commands import checks, doctor_display
    from hangwatch.doctor import hosts

    began = time.monotonic()
    ours = list(checks.of_this_machine(_settings(arguments)))
    seconds = max(LEAST_S, (arguments.seconds or doctor.SECONDS) - (time.monotonic() - began))
    shell = shlex.split(arguments.remote_shell) if arguments.remote_shell else hosts.REMOTE_SHELL
    with doctor_display.progress(seconds) as progress:
        report = doctor.run(
            arguments.command,
            nproc=arguments.nproc,
            hosts=[host for host in arguments.hosts.split(",") if host],
            remote_shell=shell,
            seconds=seconds,
            progress=progress,
        )
    report = redacted(report)
    _put(report, arguments)
    if "-" not in (arguments.json, arguments.html):
        doctor_display.show(report, ours)
    return 1 if report.worst == "fail" or _lacking(ours) else 0


def redacted(report: Report) -> Report:
    """Without the secrets of the command and of what it has printed: the page is made to be sent to others."""
    from hangwatch_agent.shared import redact

    launch = report.job.launch
    command = tuple(redact.redact_command(launch.command).split(" "))
    output = tuple(redact.redact_text(line) for line in launch.output)
    shown = replace(launch, command=command, output=output)
    checks = tuple(replace(c, details=tuple(redact.redact_text(line) for line in c.details)) for c in report.checks)
    return replace(report, checks=checks, job=replace(report.job, launch=shown))


def _put(report: Report, arguments: argparse.Namespace) -> None:
    from hangwatch.commands.report import put
    from hangwatch.doctor import page
    from hangwatch.wire import codec

    if arguments.json:
        put(arguments.json, codec.dumps(report, indent=1) + "\n")
    if arguments.html:
        put(arguments.html, page.page(report))


def _loader(arguments: argparse.Namespace) -> int:
    from hangwatch.commands import doctor_loader

    if arguments.what[0] != "loader" or len(arguments.what) != 2:
        raise HangwatchError(
            f"put the job's command behind --: hangwatch doctor -- {' '.join(arguments.what)}"
            if arguments.what[0] != "loader"
            else "name one loader: hangwatch doctor loader train.py:make_loader"
        )
    code: int = doctor_loader.run(arguments.what[1], arguments)
    return code
