"""The identity of a job, without configuration: all ranks and watchdogs of all its nodes come to the same one.

What the nodes of a job share is what its launcher tells them: a batch system's job id, torchrun's run id, the address
of the master. Only a job without a launcher has an identity of its own process tree.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from hangwatch.launchers import TORCH_PROGRAMS

if TYPE_CHECKING:
    from hangwatch.model import Identity

LOCAL = "local-"  # begins identities that only processes of one machine share
RUN = "run-"  # begins those of one `hangwatch run`
BATCH_SYSTEMS = (("slurm", "SLURM_JOB_ID"), ("lsf", "LSB_JOBID"), ("pbs", "PBS_JOBID"), ("cobalt", "COBALT_JOBID"))
NAMES = ("SLURM_JOB_NAME", "LSB_JOBNAME", "PBS_JOBNAME")
RUN_ID_OPTIONS = ("rdzv-id", "rdzv_id")
ENDPOINT_OPTIONS = ("rdzv-endpoint", "rdzv_endpoint")


def job_identity(
    environment: Mapping[str, str], *, job: str = "", parent: int, command: Sequence[str] = (), host: str = ""
) -> tuple[str, str]:
    """The id and the name of the job that a process with this environment belongs to.

    Args:
        environment: of a rank, or of the watchdog; both lead to the same id.
        job: the user's own name for it, which goes before everything else.
        parent: the pid that the job's processes on this machine have in common, for jobs without a launcher.
        command: what `hangwatch run` was told to start: torchrun's options say what its ranks' environment will.
        host: this machine; by default its own name.
    """
    if job:
        return job, job
    host = host or socket.gethostname()
    found = next(_identities({**environment, **_of_command(command)}, host), f"{LOCAL}{host}-{parent}")
    name = next((environment[known] for known in NAMES if environment.get(known)), "")
    return found, name or _script(command) or found


def shared_identity(known: str, ranks: Iterable[Identity]) -> str:
    """The job's id: the ranks' own where the watchdog's (`known`) is only good for this machine."""
    if not known.startswith(LOCAL):
        return known
    return next((id for rank in ranks if (id := _told_by(rank))), known)


def _told_by(rank: Identity) -> str:
    if rank.job and not rank.job.startswith((LOCAL, RUN)):
        return rank.job
    # Below `hangwatch run` a rank goes by the name of that run; its environment says what the launcher said.
    found, _ = job_identity(rank.environment, parent=0, host=rank.host)
    return "" if found.startswith(LOCAL) else found


def _identities(environment: Mapping[str, str], host: str) -> Iterator[str]:
    for system, variable in BATCH_SYSTEMS:
        if number := environment.get(variable):
            step = environment.get("SLURM_STEP_ID", "") if system == "slurm" else ""
            yield f"{system}-{number}{f'.{step}' if step else ''}"
    # "none" is what torchrun puts where no id was given: every such job of the world has it.
    run = environment.get("TORCHELASTIC_RUN_ID", "none")
    if run not in ("", "none"):
        yield f"torchrun-{run}"
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if address and port:
        yield f"{f'{host}:{port}' if is_loopback(address) else f'{address}:{port}'}"


def _of_command(command: Sequence[str]) -> dict[str, str]:
    """What torchrun's options say of the run, in the words of its ranks' environment."""
    given = _options(command)
    found = {}
    if run := next((given[name] for name in RUN_ID_OPTIONS if name in given), ""):
        found["TORCHELASTIC_RUN_ID"] = run
    endpoint = next((given[name] for name in ENDPOINT_OPTIONS if name in given), "")
    address, _, port = endpoint.rpartition(":")
    address = given.get("master-addr", given.get("master_addr", address))
    port = given.get("master-port", given.get("master_port", port))
    if address and port:
        found |= {"MASTER_ADDR": address, "MASTER_PORT": port}
    return found


def _options(command: Sequence[str]) -> dict[str, str]:
    """The options before the script, "--name value" and "--name=value" alike."""
    found: dict[str, str] = {}
    if not any(PurePath(word).name in TORCH_PROGRAMS for word in command[:4]):
        return found
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word.endswith(".py"):
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name] = value if equals else following
    return found


def _script(command: Sequence[str]) -> str:
    return next((PurePath(word).name for word in command if word.endswith(".py")), "")


def is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
