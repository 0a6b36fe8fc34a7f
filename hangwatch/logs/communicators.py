"""NCCL's own words as a verdict: communicators that were not set up, and warnings of networks and devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Culprit, Frame, Judgement, Stage, Status, Verdict

from . import absent as absences
from . import peers
from .model import Communicator, Fault, Logs, Warned
from .system_errors import limit, way_out
from .unknown import unknown

_OWN_PORT = re.compile(r"async event\b.*(port|device)")  # of a rank's own; what its peers see follows from it
_OF_ITS_HOST = (Fault.DUPLICATE, Fault.CUDA, Fault.MEMORY, Fault.LIMIT)
_VERSIONS = re.compile(r"Mismatched NCCL version detected : rank (\d+) (\d{5,}) rank (\d+) (\d{5,})")
_SHOWN = 3
_INTERFACE_FIX = (
    "set NCCL_SOCKET_IFNAME to the interface of the network that joins the hosts: NCCL uses {names}, which other hosts"
    " do not reach; else {fix}"
)
_HCA = re.compile(r"\bhca (\S+)|NET/IB : (\w+):\d+ ")
_IB_FIX = "look at {port} and its link (ibstat, the kernel log, cable and switch), and at both ends of it"
_CUDA_FIX = "look for Xid in the kernel log of that host (dmesg); run with CUDA_LAUNCH_BLOCKING=1 to find the kernel"
_GPU_MEMORY_FIX = "leave NCCL some memory: a smaller batch, or no other process on that GPU (nvidia-smi)"
_PEER_ACCESS_FIX = (
    "see which GPUs reach each other (nvidia-smi topo -p2p r); set NCCL_P2P_DISABLE=1 where they do not, or let the"
    " container or virtual machine see all GPUs of the job"
)
_UNLIKE_FIX = "compare the versions of NCCL of all hosts (python -c 'import torch; print(torch.cuda.nccl.version())')"
_PEER_FIX = "give the logs of all ranks: the process that ended first is the one to look at"


def half_set_up(logs: Logs) -> Communicator | None:
    """The first communicator that some rank began to set up and did not finish."""
    return next((each for each in logs.communicators.values() if each.complete != each.begun.keys()), None)


def set_up(communicator: Communicator, logs: Logs) -> Judgement:
    """What a communicator that is half set up tells of the ranks that did not begin, or did not finish."""
    if not logs.of_all(communicator):
        return _part_set_up(communicator, logs)
    absent = set(range(communicator.size)) - set(communicator.begun)
    left = sorted(set(communicator.begun) - communicator.complete)
    name = f"communicator {communicator.identifier or 'of NCCL'} of {words.plural(communicator.size, 'rank')}"
    untold = absent - absences.here(communicator, absent, logs)
    if untold:
        found = _untold(communicator, untold, absent - untold, left, name)
    elif absent:
        found = _never_began(communicator, absent, left, name)
    else:
        found = _never_finished(communicator, left, name, logs)
    cause_id, certainty, summary, fix, blamed = found
    hosts = set(communicator.begun.values())
    if (untold or len(hosts) > 1) and (unreachable := absences.unreachable(hosts, logs)):
        fix = _INTERFACE_FIX.format(names=unreachable, fix=fix)
    return Judgement(
        Status.HUNG,
        Stage.START,
        Verdict(
            cause=cause_id,
            certainty=certainty,
            summary=summary,
            fix=fix,
            culprits=tuple(Culprit(rank, host=communicator.begun.get(rank, "")) for rank in blamed),
            victims=tuple(rank for rank in sorted(communicator.begun) if rank not in blamed),
            evidence=(f"Init START and no Init COMPLETE: {words.ranks(left)}", *evidence(logs)),
            hang=Certainty.LIKELY,
            argument=("the logs end before the communicator was set up",),
        ),
    )


def _part_set_up(communicator: Communicator, logs: Logs) -> Judgement:
    """The same of a communicator of some ranks: its numbers are its own, and the job's are known of few processes."""
    absent = sorted(set(range(communicator.size)) - set(communicator.begun))
    left = sorted(set(communicator.begun) - communicator.complete)
    job = {own: logs.rank_of(communicator.processes[own]) for own in left if own in communicator.processes}
    waiting = tuple(sorted(rank for rank in job.values() if rank is not None))
    places = words.listed([_process(communicator, own, job.get(own)) for own in left[:_SHOWN]])
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    name = f"communicator {communicator.identifier or 'of NCCL'} of {words.plural(communicator.size, 'rank')}"
    lacking = f"; of its own {words.ranks(absent)} no line is in these logs" if absent else ""
    return unknown(
        Status.HUNG,
        Stage.START,
        summary=f"{words.capital(places)}{more} began to set up {name} and did not finish{lacking}.",
        fix="give the dumps or the watchdog's lines too: NCCL numbers the ranks of each communicator anew",
        victims=waiting,
        evidence=(f"Init START and no Init COMPLETE: its own {words.ranks(left)}", *evidence(logs)),
        hang=Certainty.LIKELY,
        argument=("the logs end before the communicator was set up",),
    )


def _process(communicator: Communicator, own: int, rank: int | None) -> str:
    """rank 5, or pid 4711 on node-a where the job's rank is not known"""
    if rank is not None:
        return words.ranks([rank])
    host, pid = communicator.processes[own]
    return f"pid {pid} on {host}"


_Said = tuple[str, Certainty, str, str, list[int]]  # cause, certainty, summary, fix, ranks to blame


def _never_began(communicator: Communicator, absent: set[int], left: list[int], name: str) -> _Said:
    blamed = sorted(absent) if 2 * len(absent) <= communicator.size else []
    waiting = f", for which {words.ranks(left)} {words.verb(len(left), 'waits', 'wait')}" if left else ""
    they, do, run = ("it", "does", "runs") if len(absent) == 1 else ("they", "do", "run")
    return (
        "undetermined",
        Certainty.UNDETERMINED,
        f"{words.ranks(absent, capital=True)} never began to set up {name}{waiting}.",
        f"look at {words.ranks(absent)}: what {they} {do} before the first collective, and whether {they} {run} at all",
        blamed,
    )


def _untold(communicator: Communicator, untold: set[int], absent: set[int], left: list[int], name: str) -> _Said:
    """Of some ranks there is neither a line nor a log of their host: they never began, or that log was not given."""
    who, node = words.ranks(untold), words.verb(len(untold), "its node", "their nodes")
    they, were = words.verb(len(untold), "it", "they"), words.verb(len(untold), "was", "were")
    where = f"the {words.verb(len(untold), 'node', 'nodes')} of {who}"
    give = f"give the logs of {where} too; if these are all, see whether {they} {were} started, and reach the others"
    if absent:
        cause_id, certainty, summary, fix, blamed = _never_began(communicator, absent, left, name)
        more = f"No line of {who} is in these logs: {they} never began either, or the log of {node} was not given."
        return cause_id, certainty, f"{summary} {more}", f"{fix}; {give}", blamed
    waiting = f", for which {words.ranks(left)} {words.verb(len(left), 'waits', 'wait')}" if left else ""
    summary = (
        f"No line of {who} is in these logs: either {they} never began to set up {name}{waiting}, or the log of {node}"
        " was not given."
    )
    return "undetermined", Certainty.UNDETERMINED, summary, give, []


def _never_finished(communicator: Communicator, left: list[int], name: str, logs: Logs) -> _Said:
    """All ranks began. A link that does not deliver has two ends: where one rank alone is left, it is its own doing."""
    hosts = sorted({communicator.begun[rank] for rank in left})
    summary = (
        f"All ranks began to set up {name}; {words.ranks(left)} on {words.listed(hosts[:4])}"
        f" {words.verb(len(left), 'has', 'have')} not finished it"
    )
    warning = worst(logs)
    unreachable = warning is not None and warning[1].fault is Fault.NETWORK
    if len(left) > 1 and (unreachable or len(set(communicator.begun.values())) > 1):
        link, networks = cause("network-partition"), _networks(logs)
        fix = (
            f"let NCCL use one network on all hosts (NCCL_SOCKET_IFNAME); it uses {networks}" if networks else link.fix
        )
        return link.id, Certainty.LIKELY, f"{summary}: they do not reach each other.", fix, []
    others = sorted(communicator.complete)
    done = f", and {words.ranks(others)} {words.verb(len(others), 'has', 'have')}" if others else ""
    return (
        "undetermined",
        Certainty.UNDETERMINED,
        f"{summary}{done}.",
        f"look at the stack of {words.ranks(left)} (py-spy dump --native), and at the end of what it logged",
        left if 2 * len(left) < communicator.size else [],
    )


def _networks(logs: Logs) -> str:
    """`node-a: bond0; node-b: docker0`, where hosts use different ones."""
    unlike = len({frozenset(names) for names in logs.networks.values()}) > 1
    return next(_uses(logs)).removeprefix("NCCL uses ") if unlike else ""


# ------------------------------------------------------------------------------------------ warnings


def worst(logs: Logs) -> tuple[str, Warned] | None:
    """The warning that tells most: of two ranks on one GPU, of a device, of a network, of a peer that has gone.

    None of what NCCL does without, nor of those behind which the same log goes on.
    """
    order = list(Fault)
    return min(
        (item for item in logs.warnings.items() if item[1].pending),
        key=lambda item: (
            order.index(item[1].fault),
            not _OWN_PORT.search(item[0]),
            -item[1].count,
            not by(item[1], logs),
        ),
        default=None,
    )


def warned(text: str, warning: Warned, logs: Logs) -> Judgement:
    """The verdict where a warning is all there is."""
    ranks = by(warning, logs)
    cause_id, certainty, summary, fix = {
        Fault.DUPLICATE: _duplicate,
        Fault.CUDA: _cuda,
        Fault.MEMORY: _memory,
        Fault.LIMIT: _limit,
        Fault.UNLIKE: _unlike,
        Fault.NETWORK: _network,
        Fault.PEER: _peer,
    }[warning.fault](text, ranks)
    fix = fix.format(port=port(text, warning, logs) or "that port") if fix == _IB_FIX else fix
    blamed = ranks if warning.fault in _OF_ITS_HOST else []
    where = {rank: logs.raised[rank].where for rank in blamed if rank in logs.raised and logs.raised[rank].where}
    return Judgement(
        Status.FAILED,
        Stage.DEVICE,
        Verdict(
            cause=cause_id,
            certainty=certainty,
            summary=summary,
            fix=fix,
            culprits=tuple(Culprit(rank, where=where.get(rank)) for rank in blamed),
            evidence=(*_raised_at(where), *evidence(logs)),
        ),
    )


def _raised_at(where: Mapping[int, Frame | None]) -> Iterator[str]:
    """The user's lines at which ranks met the error."""
    for rank, frame in list(where.items())[:_SHOWN]:
        yield f"it surfaced on rank {rank}{words.at(frame)}"


def port(text: str, warning: Warned, logs: Logs) -> str:
    """`mlx5_3 of node-b (rank 11)`: the network adapter that a warning is about; "" where none is named."""
    own = (other for other, known in logs.warnings.items() if known.processes.keys() & warning.processes.keys())
    found = next(filter(None, map(_HCA.search, (text, *own))), None)
    if found is None:
        return ""
    ranks = by(warning, logs)
    rank = f" ({words.ranks(ranks)})" if ranks else ""
    return f"{found[1] or found[2]}{f' of {warning.host}' if warning.host else ''}{rank}"


def by(warning: Warned, logs: Logs) -> list[int]:
    """The ranks that a warning is about: those that it or its file names, else those whose processes wrote it."""
    told = (logs.rank_of(process) for process in warning.processes)
    return sorted(warning.ranks or {rank for rank in told if rank is not None})


def _duplicate(text: str, ranks: list[int]) -> tuple[str, Certainty, str, str]:
    entry = cause("duplicate-gpu")
    summary = f"{words.ranks(ranks, capital=True)} are bound to one GPU, and NCCL wants one GPU for each rank: {text}."
    return entry.id, Certainty.PROVEN, summary, entry.fix


def _cuda(text: str, ranks: list[int]) -> tuple[str, Certainty, str, str]:
    whose = f" on {words.ranks(ranks)}" if ranks else ""
    if "out of memory" in text:
        summary = f"NCCL{whose} found too little memory left on the GPU: {text}."
        certainty = Certainty.LIKELY if len(ranks) == 1 else Certainty.UNDETERMINED
        return "exception-on-one-rank", certainty, summary, _GPU_MEMORY_FIX
    if "peer access" in text:
        summary = f"NCCL{whose} was refused access from one GPU to another: {text}."
        return "undetermined", Certainty.UNDETERMINED, summary, _PEER_ACCESS_FIX
    summary = f"NCCL{whose} met an error of CUDA, which may come from an earlier kernel of any kind: {text}."
    return "undetermined", Certainty.UNDETERMINED, summary, _CUDA_FIX


def _memory(text: str, ranks: list[int]) -> tuple[str, Certainty, str, str]:
    entry = cause("shared-memory-exhausted")
    whose = f" of {words.ranks(ranks)}" if ranks else ""
    summary = f"NCCL{whose} got no shared memory: {text}."
    return entry.id, Certainty.LIKELY if "No space left" in text else Certainty.UNDETERMINED, summary, entry.fix


def _limit(text: str, ranks: list[int]) -> tuple[str, Certainty, str, str]:
    known = limit(text)
    assert known is not None  # or the warning were of another kind
    whose = f" of {words.ranks(ranks)}" if ranks else ""
    certainty = Certainty.LIKELY if len(ranks) == 1 else Certainty.UNDETERMINED
    return known.cause, certainty, f"NCCL{whose} came to a limit: {known.said}: {text}.", known.fix


def _unlike(text: str, ranks: list[int]) -> tuple[str, Certainty, str, str]:
    if told := _VERSIONS.search(text):
        one, other = (f"rank {told[at]} has NCCL {_version(int(told[at + 1]))}" for at in (1, 3))
        return (
            "launch-mismatch",
            Certainty.LIKELY,
            f"{words.capital(one)} and {other}, which do not work together.",
            _UNLIKE_FIX,
        )
    whose = f" of {words.ranks(ranks)}" if ranks else ""
    summary = f"NCCL{whose} and a peer do not speak alike, as different versions of NCCL do: {text}."
    return "undetermined", Certainty.UNDETERMINED, summary, _UNLIKE_FIX


def _version(code: int) -> str:
    """2.21.5 of 22105, as NCCL has numbered its versions since 2.9."""
    return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"


def _network(text: str, ranks: list[int]) -> tuple[str, Certainty, str, str]:
    seen = f", seen by {words.ranks(ranks)}" if ranks else ""
    entry = cause("interconnect-stall")
    fix = way_out(text) or (_IB_FIX if "NET/IB" in text or "ibv_" in text else cause("network-partition").fix)
    return entry.id, Certainty.UNDETERMINED, f"NCCL warns of a network that fails{seen}: {text}.", fix


def _peer(text: str, ranks: list[int]) -> tuple[str, Certainty, str, str]:
    whose = f" of {words.ranks(ranks)}" if ranks else ""
    summary = f"A peer{whose} closed its connection, as a process does that ends: {text}."
    return "undetermined", Certainty.UNDETERMINED, summary, _PEER_FIX


def evidence(logs: Logs) -> tuple[str, ...]:
    """What NCCL warned of, at which hosts that points, and what it uses."""
    return (*_warnings(logs), *peers.told(logs), *_uses(logs))


def passed(logs: Logs) -> Iterator[str]:
    """A sentence for each warning that is no failure: NCCL does without, or the log goes on behind it."""
    told = [text for text, known in logs.warnings.items() if not known.pending]
    yield from (f"NCCL warned, which is no failure by itself: {text}" for text in told[:_SHOWN])


def _warnings(logs: Logs) -> Iterator[str]:
    for text, known in list(logs.warnings.items())[:_SHOWN]:
        ranks = by(known, logs)
        whose = f"{words.ranks(ranks)}{' on ' if known.host else ': '}" if ranks else ""
        times = f" ({known.count} times)" if known.count > 1 else ""
        yield f"{whose}{text}{times}{'' if known.pending else ', which is no failure by itself'}"


def _uses(logs: Logs) -> Iterator[str]:
    if logs.networks:
        hosts = [f"{host}: {', '.join(sorted(names))}" for host, names in sorted(logs.networks.items())[:4]]
        yield f"NCCL uses {'; '.join(hosts)}"
    if logs.transports:
        yield f"transports: {', '.join(sorted(logs.transports))}"
