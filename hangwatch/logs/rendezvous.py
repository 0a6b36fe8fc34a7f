"""What torch's store says in the exceptions of ranks that waited in it: who came, and for whom they waited."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict

from .ends import failures
from .model import Failure, Logs
from .unknown import unknown

_CAME = re.compile(r"waiting for clients\. (?P<came>\d+)/(?P<size>\d+) clients joined")
_BARRIER = re.compile(
    r"Timed out initializing process group in store based barrier on rank:? (\d+), .*"
    r"\(world_size=(?P<size>\d+), num_workers_joined=(?P<came>\d+)"
)
_NO_MASTER = re.compile(r"client socket has timed out after (\d+)\s*ms while trying to connect to \(([^\s,]+), (\d+)\)")
_PORT = re.compile(r"port: (\d+)")
_NO_ID = re.compile(r"retrieving ncclUniqueId from \[(\d+)\] .*wait timeout after (\d+)ms(.*)")
MARKS = (
    "clients joined",
    "RendezvousTimeoutError",
    "EADDRINUSE",
    "while trying to connect to",
    "store based barrier on",
    "RendezvousConnectionError",
)
_OF_A_RANK = "[rank"  # how torch begins the lines of a rank's exception
_LAUNCHER = re.compile(
    r"(?:DistStoreError|RuntimeError): .*clients joined|\bRendezvousTimeoutError\b"
    r"|Error: .*failed to listen.*EADDRINUSE|Error: .*while trying to connect to"
    r"|^torch\.distributed\.elastic\.rendezvous\.api\.RendezvousConnectionError: "
)
_REFUSED = re.compile(r"client socket has failed to connect to \[?([^\]\s]+?)\]?:(\d+) \(errno: \d+ - ([^)]+)\)")
_HEARTBEAT = re.compile(r"The node '(\S+)' has failed to send a keep-alive heartbeat to the rendezvous")
_LOST = re.compile(
    r"\[rank(\d+)\]:.*(?:sendBytes|recvValue|recvBytes) failed on SocketImpl\(.*remote=\[?([^\]\s,]+)\]?:(\d+)"
)
_CONNECTION = "RendezvousConnectionError"
_ENDPOINT_FIX = (
    "start the node that --rdzv-endpoint names first, and see that its host and port are the same, and can be reached,"
    " from every node"
)


def take(line: str, logs: Logs) -> bool:
    """Keep what an exception says of which torch does not tell the rank: a launcher's, or one before a rank has begun.

    False for a line of no use.
    """
    if "store based barrier on" in line and (barrier := _BARRIER.search(line)):
        logs.barriers[int(barrier[1])] = barrier[0]
        return True
    _note_stores(line, logs)
    if line.startswith(_OF_A_RANK) or not any(mark in line for mark in MARKS) or not _LAUNCHER.search(line):
        return False
    logs.launchers[line.strip()] = None
    return True


def _note_stores(line: str, logs: Logs) -> None:
    """What a store refused, or how it was lost: by itself that is no failure, as at the end of a job."""
    if "failed to connect to" in line and (refused := _REFUSED.search(line)):
        logs.unreached[f"{refused[1]}:{refused[2]} ({refused[3]})"] = None
    elif "keep-alive heartbeat" in line and (node := _HEARTBEAT.search(line)):
        logs.silent_nodes[node[1]] = None
    elif "SocketImpl(" in line and (lost := _LOST.search(line)):
        logs.lost_store[int(lost[1])] = f"{lost[2]}:{lost[3]}"


def judged(logs: Logs) -> Judgement | None:
    """What such exceptions tell where nothing else does."""
    ended = failures(logs).values()
    return _unreached(ended, logs) or _too_few(ended, logs) or _no_identifier(ended, logs) or _launchers(logs)


def _unreached(ended: Iterable[Failure], logs: Logs) -> Judgement | None:
    """Processes did not reach the store, which the first rank or a launcher serves: it waits for them in vain."""
    told = {each.rank: each.text for each in ended if _NO_MASTER.search(each.text)}
    nameless = [] if logs.ranks - told.keys() else list(filter(_NO_MASTER.search, logs.launchers))
    texts = [*told.values(), *nameless]
    found = next(filter(None, map(_NO_MASTER.search, texts)), None)
    if found is None:
        return None
    who = words.ranks(sorted(told), capital=True) if told else "A process of this job"
    waited = words.duration(int(found[1]) / 1000)
    summary = f"{who} did not reach the store at {found[2]}:{found[3]}, and gave it up after {waited}."
    came = [said for said in logs.launchers if _CAME.search(said)]
    return _failed(
        "rendezvous-unreachable-master", summary, *dict.fromkeys((texts[0], *came[:1])), victims=sorted(told)
    )


def _launchers(logs: Logs) -> Judgement | None:
    """A launcher waited in vain for those of other nodes, or did not get its port: no rank of its node has begun."""
    if any(_CONNECTION in said for said in logs.launchers) and logs.silent_nodes:
        return _lost(logs)
    if not logs.launchers or logs.ranks:
        return None
    if said := next((said for said in logs.launchers if _CONNECTION in said), ""):
        where = f" at {next(iter(logs.unreached))}" if logs.unreached else ""
        summary = f"A launcher did not reach the store of the rendezvous{where}."
        return _failed("rendezvous-unreachable-master", summary, said, fix=_ENDPOINT_FIX)
    if taken := next((said for said in logs.launchers if "EADDRINUSE" in said), ""):
        port = _PORT.search(taken)
        which = f"port {port[1]}" if port else "its port"
        return _failed("rendezvous-port-conflict", f"The launcher could not listen: {which} is in use already.", taken)
    came = next(filter(None, map(_CAME.search, logs.launchers)), None)
    name = "rendezvous-missing-ranks" if came else "node-not-started"
    who = f"{came[1]} of {came[2]} came" if came else "not all came"
    waited = "ranks or launchers" if came else "launchers"  # no line tells whether a rank's store or a launcher's
    summary = f"The {waited} of this job waited for each other in vain: {who} to their rendezvous in time."
    return _failed(name, summary, *tuple(logs.launchers)[:3])


def _lost(logs: Logs) -> Judgement:
    """The store went away while the job ran. Its host has ended, and not the node that says so."""
    nodes = words.listed(list(logs.silent_nodes))
    return unknown(
        Status.FAILED,
        Stage.STEP,
        f"The launcher of {nodes} lost the store of its rendezvous while the job ran: the process that serves it, on"
        " the host of --rdzv-endpoint, had ended or could not be reached.",
        fix="give the log of the host of --rdzv-endpoint, as a rule the first node: what ended there came first",
        evidence=tuple(said for said in logs.launchers if _CONNECTION in said)[:1],
    )


def lost_stores(logs: Logs) -> Iterator[str]:
    """A sentence on ranks that lost the store, as at the end of a job, or where its process ended before them."""
    stores: dict[str, list[int]] = {}
    for rank, address in sorted(logs.lost_store.items()):
        stores.setdefault(address, []).append(rank)
    for address, ranks in stores.items():
        yield (
            f"{words.ranks(ranks)} lost the store at {address}: the process that serves it, as a rule rank 0, had ended"
            " before them; if the job was not at its end then, its log tells why"
        )


def _too_few(ended: Iterable[Failure], logs: Logs) -> Judgement | None:
    """The ranks that came say how many came. Where each of them has said so, the others are known by name."""
    texts = {**logs.barriers, **{each.rank: each.text for each in ended}}
    told = {rank: found for rank, text in texts.items() if (found := _CAME.search(text) or _BARRIER.search(text))}
    if not told:
        return None
    came, size = max((int(found["came"]), int(found["size"])) for found in told.values())
    missing = sorted(set(range(size)) - told.keys()) if len(told) == came < size else []
    named = f": {words.ranks(missing)} did not" if missing else ""
    summary = f"Of {words.plural(size, 'rank')}, {came} came to the rendezvous in time{named}."
    said = next(found[0] for found in told.values())
    return _failed("rendezvous-missing-ranks", summary, said, culprits=missing, victims=sorted(told))


def _no_identifier(ended: Iterable[Failure], logs: Logs) -> Judgement | None:
    """The first rank of a group hands its communicator's id to the others, when it comes to the group's first call."""
    told = [(each.rank, found) for each in ended if (found := _NO_ID.search(each.text))]
    if not told:
        return None
    default = all("/default_pg/" in found[3] for _, found in told)  # there, the group's ranks are the job's
    first = {int(found[1]) for _, found in told} - {rank for rank, _ in told} if default else set()
    who = words.ranks(sorted(first)) if first else "the first rank of their group"
    waiting = sorted(rank for rank, _ in told)
    waited = words.duration(int(told[0][1][2]) / 1000)
    return unknown(
        Status.FAILED,
        Stage.START,
        summary=f"{words.ranks(waiting, capital=True)} waited {waited} for {who} to begin the first collective of a"
        " communicator, which makes its id.",
        fix=f"look at {who}: what it did instead, at the time of that collective",
        culprits=tuple(map(Culprit, sorted(first))),
        victims=tuple(waiting),
    )


def _failed(
    name: str, summary: str, *evidence: str, culprits: Iterable[int] = (), victims: Iterable[int] = (), fix: str = ""
) -> Judgement:
    """The likely cause `name` of a job that failed at its start."""
    verdict = Verdict(
        cause=name,
        certainty=Certainty.LIKELY,
        summary=summary,
        fix=fix or cause(name).fix,
        culprits=tuple(map(Culprit, culprits)),
        victims=tuple(victims),
        evidence=evidence,
    )
    return Judgement(Status.FAILED, Stage.START, verdict)
