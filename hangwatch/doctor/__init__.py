"""A preflight: the job's own launch with a probe in each rank's place, checked rank by rank and pair by pair.

    from hangwatch import doctor

    report = doctor.run(["torchrun", "--nproc-per-node", "4", "train.py"])
    for check in report.checks:
        print(check.state, check.name, check.found, check.advice)

Needs the standard library only; the probes need the packages of the job's own interpreters. No line of the user's
script runs where the launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; elsewhere the script runs up to its
`init_process_group`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from hangwatch.doctor import endpoint
from hangwatch.doctor import hosts as without_command
from hangwatch.doctor.families import all_checks
from hangwatch.doctor.launch import Progress, launched, silent
from hangwatch.doctor.model import Check, Job, RankFacts, Report, State

__all__ = ["Check", "Job", "Progress", "RankFacts", "Report", "State", "run"]

SECONDS = 60.0


def run(
    command: Sequence[str] = (),
    *,
    nproc: int = 0,
    hosts: Sequence[str] = (),
    remote_shell: Sequence[str] = without_command.REMOTE_SHELL,
    seconds: float = SECONDS,
    environment: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> Report:
    """Check a job before it trains. Returns after at most `seconds`, whatever hangs.

    Args:
        command: the job's launch, e.g. `["torchrun", "--nproc-per-node", "8", "train.py"]`.
        nproc: without a command: this many ranks, on each of `hosts` where there are any.
        hosts: without a command: names of hosts that `remote_shell` reaches without a password.
        remote_shell: what runs a command on a host; the host's name and the command are put behind it.
        seconds: the time for everything, at least 10.
        environment: of the command; ours by default.
        progress: called about ten times a second, with what is known of each rank so far.

    Raises:
        HangwatchError: neither command nor `nproc` is given, or the probes are not installed.
    """
    began = time.monotonic()
    expected = endpoint.ranks(command) if command else nproc * max(1, len(hosts))
    if not command:
        command = without_command.command(max(1, nproc), hosts, remote_shell)
        environment = without_command.environment(environment)
    facts, launch = launched(command, seconds, progress, environment=environment, expected=expected, asked_hosts=hosts)
    job = Job(facts, launch)
    return Report(tuple(all_checks(job)), job, time.time(), time.monotonic() - began, _version())


def _version() -> str:
    from hangwatch.version import __version__

    return __version__
