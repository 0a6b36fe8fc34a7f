"""Networks that differ between the processes of one communicator: NCCL connects only ends that use the same one."""

from __future__ import annotations

from hangwatch import words
from hangwatch.model import Certainty, Judgement, Stage, Status, Verdict

from . import communicators
from .model import Communicator, Logs

_FIX = (
    "let all hosts use the same network: see why the faster one has no device on the others (ibstat, /dev/infiniband in"
    " the container), or set NCCL_NET to one that all have, as Socket"
)


def judged(logs: Logs) -> Judgement | None:
    """The verdict where all ranks began a set-up that did not come to its end, and use different networks."""
    half = communicators.half_set_up(logs)
    if half is None or len(half.begun) < half.size or len(places := _places(half, logs)) < 2:
        return None
    told = words.listed(f"{network} on {place}" for network, place in sorted(places.items()))
    verdict = Verdict(
        cause="launch-mismatch",
        certainty=Certainty.LIKELY,
        summary=f"The hosts of this job use different networks for NCCL, which do not connect: {told}.",
        fix=_FIX,
        victims=tuple(sorted(half.begun)),
        evidence=communicators.evidence(logs),
        hang=Certainty.LIKELY,
        argument=("the logs end before the communicator was set up",),
    )
    return Judgement(Status.HUNG, Stage.START, verdict)


def _places(communicator: Communicator, logs: Logs) -> dict[str, str]:
    """The hosts and ranks of each network; none where it is not known of all, or those of one host differ."""
    processes = communicator.processes
    if any(each not in logs.used_networks for each in processes.values()):
        return {}
    found: dict[str, list[int]] = {}
    for rank, process in sorted(processes.items()):
        found.setdefault(logs.used_networks[process], []).append(rank)
    return {network: _named(ranks, communicator) for network, ranks in found.items()}


def _named(ranks: list[int], communicator: Communicator) -> str:
    hosts = list(dict.fromkeys(communicator.processes[rank][0] for rank in ranks))
    return f"{words.listed(hosts[: words.SHOWN])} ({words.ranks(ranks)})"
