"""Versions of NCCL that differ between the hosts of one job: NCCL works only between equal ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hangwatch import words
from hangwatch.model import Certainty, Judgement, Stage, Status, Verdict

from . import communicators, ends
from .model import Communicator, Fault, Logs

_SAID = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_FIX = (
    "install the same torch, and with it the same NCCL, on all hosts; python -c 'import torch;"
    " print(torch.cuda.nccl.version())' shows it, LD_LIBRARY_PATH and LD_PRELOAD may bring in another"
)


def judged(logs: Logs) -> Judgement | None:
    """The verdict where versions differ and NCCL failed of it, or did not come to the end of its set-up."""
    half = communicators.half_set_up(logs)
    failed = any(each.fault is Fault.UNLIKE for each in logs.warnings.values())
    whole = half is not None and len(half.begun) == half.size
    if not (failed or whole) or len(places := _places(half, logs)) < 2:
        return None
    ended = sorted(ends.failures(logs))
    told = words.listed([f"{version} on {words.listed(where[:4])}" for version, where in sorted(places.items())])
    hung = not ended and half is not None
    verdict = Verdict(
        cause="launch-mismatch",
        certainty=Certainty.LIKELY,
        summary=f"The hosts of this job run different versions of NCCL, which do not work together: {told}.",
        fix=_FIX,
        victims=tuple(ended or sorted(half.begun if half else ())),
        evidence=communicators.evidence(logs),
        hang=Certainty.LIKELY if hung else None,
        argument=("the logs end before the communicator was set up",) if hung else (),
    )
    return Judgement(Status.HUNG if hung else Status.FAILED, Stage.START, verdict)


def _places(communicator: Communicator | None, logs: Logs) -> dict[str, list[str]]:
    """The hosts of each version; where NCCL's own lines tell of one only, the ranks, by their exceptions."""
    of_it = logs.versions if communicator is None else set(communicator.processes.values())
    hosts = _by_version((logs.versions[each], each[0]) for each in of_it if each in logs.versions)
    if len(hosts) > 1:
        return hosts
    raised = sorted((rank, found[1]) for rank, each in logs.raised.items() if (found := _SAID.search(each.text)))
    return {
        version: [words.ranks([rank for rank, other in raised if other == version])]
        for version in sorted({version for _, version in raised})
    }


def _by_version(told: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for version, host in sorted(set(told)):
        found.setdefault(version, []).append(host)
    return found
