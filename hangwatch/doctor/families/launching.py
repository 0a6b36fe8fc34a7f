"""Whether the job's own command starts ranks at all."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.doctor.families.telling import fail, ok, warn
from hangwatch.doctor.model import Check, Job

FAMILY = "launch"


def checks(job: Job) -> Iterator[Check]:
    launch = job.launch
    if launch.problem:
        yield fail(FAMILY, "command", launch.problem, "correct the command behind --")
    elif not job.ranks:
        yield fail(FAMILY, "command", _no_rank(job), _advice(job), details=launch.output)
    elif launch.exit_code not in (0, None):
        found = f"the launcher ended with code {launch.exit_code} after {launch.took_s:.0f} s"
        yield warn(FAMILY, "command", found, "read its last lines", details=launch.output)
    elif launch.exit_code is None:
        found = f"the launcher had not ended after {launch.took_s:.0f} s, and was ended with all that it had started"
        yield warn(FAMILY, "command", found, "see which rank or host is missing below", details=launch.output)
    else:
        yield ok(FAMILY, "command", f"started {len(job.ranks)} ranks in {launch.took_s:.0f} s")
    if launch.endpoint_problem:
        found = f"the rendezvous {launch.endpoint}: {launch.endpoint_problem}"
        yield fail(FAMILY, "rendezvous", found, "start the first node's launcher, and open this port between the hosts")


def _no_rank(job: Job) -> str:
    if job.launch.exit_code is None:
        return f"no rank was started within {job.launch.took_s:.0f} s: the launcher waits"
    return f"no rank was started: the launcher ended with code {job.launch.exit_code}"


def _advice(job: Job) -> str:
    if job.launch.exit_code is None:
        return "a launcher waits for the other nodes: start it on all of them, and compare their rendezvous"
    return "read its last lines; the probe takes the place of Python processes that call init_process_group"
