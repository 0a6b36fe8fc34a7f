"""`hangwatch run [options] -- COMMAND ...`: watch a command without changing it."""

from __future__ import annotations

import argparse

from hangwatch.errors import HangwatchError
from hangwatch.settings import Settings

HELP = "run a command and watch the distributed training in it"
EXAMPLES = (
    "hangwatch run -- torchrun --nproc-per-node 8 train.py",
    "hangwatch run --on-hang abort --dashboard http://monitor:8470 -- python train.py",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "hangwatch run [options] -- COMMAND ..."
    parser.add_argument("--report-dir", metavar="DIR", help="where reports are written (hangwatch-reports/)")
    parser.add_argument(
        "--on-hang",
        choices=("report", "abort", "abort-attempt"),
        help="what to do after the report: `report` leaves the job as it is (default), `abort` ends the whole job"
        " (exit code 75), `abort-attempt` ends its ranks only, so that their launcher may restart them",
    )
    parser.add_argument(
        "--on-forecast",
        choices=("warn", "abort"),
        help="where the ranks' plans show that the job will hang: say so, or also end the job",
    )
    parser.add_argument(
        "--stall-after",
        type=float,
        metavar="SECONDS",
        help="seconds without progress before an unproven hang is reported (120); five times as long in a first step,"
        " an evaluation or a checkpoint, 60 at most where a fact keeps a rank from going on",
    )
    parser.add_argument("--dashboard", metavar="URL", help="URL of the dashboard to report to")
    parser.add_argument("--job", metavar="NAME", help="the job's name, the same on all nodes")


def run(arguments: argparse.Namespace) -> int:
    if not arguments.command:
        raise HangwatchError(
            "nothing to run; say what after --, e.g. hangwatch run -- torchrun --nproc-per-node 2 train.py"
        )
    settings = Settings.of_options(
        report_dir=arguments.report_dir,
        on_hang=arguments.on_hang,
        on_forecast=arguments.on_forecast,
        stall_after=arguments.stall_after,
        dashboard=arguments.dashboard,
        job=arguments.job,
    )
    from hangwatch_agent.watchdog.run_command import supervise

    return supervise(arguments.command, settings)
