"""What to check first next time: what `hangwatch doctor`, a forecast or a setting would have shown before.

Derived from the cause and from what the evidence holds; what does not fit the facts is not told. Where nothing could
have been known before, the list is empty: a check that finds nothing costs trust.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from hangwatch import words
from hangwatch.launchers import PROGRAMS
from hangwatch.model import Incident, LoaderFacts, NextCheck
from hangwatch.report.words import clean

MOST = 4
HIDDEN = "***"  # in a redacted command
LONGEST = 200  # characters of a command that is told again

Found = Iterator[NextCheck]
Rule = Callable[[Incident], Found]


def checks(incident: Incident) -> tuple[NextCheck, ...]:
    """At most four checks, the most telling first."""
    if not incident.verdict.cause:
        return ()
    found = [*BY_CAUSE.get(incident.verdict.cause, _nothing)(incident), *_warned(incident), *_missing(incident)]
    first: dict[tuple[str, str], NextCheck] = {}
    for each in found:
        first.setdefault((each.command, each.check), each)
    return tuple(first.values())[:MOST]


# ---------------------------------------------------------------- the commands


def _doctor(incident: Incident, family: str, why: str) -> NextCheck:
    return NextCheck(f"hangwatch doctor {_launch(incident)}", family, why)


def _launch(incident: Incident) -> str:
    """The job's own launch where its command is known whole; else as many ranks on its hosts.

    A rank can have put anything into its command, and a person will paste this into a shell: every word is quoted.
    """
    try:
        command = shlex.split(incident.job.command)
    except ValueError:
        command = []
    told = clean(shlex.join(command))
    if command and command[0].rpartition("/")[2] in PROGRAMS and HIDDEN not in told and len(told) <= LONGEST:
        return f"-- {told}"
    hosts = list(dict.fromkeys(rank.host for rank in incident.ranks if rank.host))
    size = incident.job.world_size or max(len(incident.ranks), 2)
    if len(hosts) > 1:
        return f"--nproc {-(-size // len(hosts))} --hosts {shlex.quote(','.join(hosts[:16]))}"
    return f"--nproc {size}"


def _loader(incident: Incident, check: str, why: str) -> Found:
    """Only where a loader was seen: without one there is nothing to walk."""
    loader = _training(incident)
    if loader is None:
        return
    file = loader.where.file.rpartition("/")[2] if loader.where is not None else "FILE.py"
    size = min(incident.job.world_size or 2, 8)
    yield NextCheck(f"hangwatch doctor loader {shlex.quote(clean(file))}:NAME --ranks {size}", f"loader {check}", why)


def _training(incident: Incident) -> LoaderFacts | None:
    found = [loader for rank in incident.ranks for loader in rank.loader]
    return next((each for each in found if each.training), found[0] if found else None)


def _abort(forecast: str, why: str) -> NextCheck:
    return NextCheck("hangwatch run --on-forecast abort -- COMMAND", forecast, why)


# ---------------------------------------------------------------- by cause


def _nothing(incident: Incident) -> Found:
    return iter(())


def _uneven(incident: Incident) -> Found:
    lengths = {
        rank.rank: loader.length
        for rank in incident.ranks
        for loader in rank.loader
        if loader.training and loader.length is not None
    }
    if len(set(lengths.values())) > 1:
        least, most = min(lengths.values()), max(lengths.values())
        said = f"the loaders' lengths differ ({least} and {words.plural(most, 'batch')}) and are known before step 0"
        yield _abort("uneven-forecast", said)
    yield from _loader(incident, "lengths", "it shows how many batches each rank's loader gives, before any training")


def _plans(incident: Incident) -> Found:
    plans = {tuple(sorted(rank.reading.identity.plan.items())) for rank in incident.ranks if rank.reading is not None}
    if len(plans) > 1:
        yield _abort("plans-differ", "the ranks' models differ, which is known when DistributedDataParallel is made")


def _groups(incident: Incident) -> Found:
    yield _abort("plans-differ", "the order in which the ranks make groups is compared as they are made")


def _exception(incident: Incident) -> Found:
    raised = [rank.exception for rank in incident.ranks if rank.exception is not None]
    text = " ".join(f"{each.type} {each.message}" for each in raised).lower()
    places = [frame for each in raised for frame in each.frames]
    if "out of memory" in text and "cuda" in text:
        yield _doctor(incident, "gpus", "it shows free memory and what other processes hold on each rank's GPU")
    if any(kind in text for kind in ("importerror", "modulenotfounderror")):
        yield _doctor(incident, "versions", "it compares the packages and the code of all ranks")
    if any("/torch/utils/data/" in frame.file for frame in places):
        yield from _loader(incident, "errors", "the error came out of the loader: it names sample and line")


def _killed(incident: Incident) -> Found:
    killed = any(node.oom_kills for node in incident.nodes)
    if killed and any(loader.num_workers for rank in incident.ranks for loader in rank.loader):
        yield from _loader(incident, "memory", "a process was killed for memory: it shows what grows with each epoch")


def _launch_numbers(incident: Incident) -> Found:
    """Where ranks were started, their numbers can be compared; where launchers wait for each other, none is."""
    if incident.ranks:
        yield _doctor(incident, "ranks", "it starts the same launch, and compares RANK and WORLD_SIZE of what comes")
    else:
        yield _doctor(incident, "launch", "it starts the same launch, and says that the launcher starts no rank")


def _lock(incident: Incident) -> Found:
    """A walk takes only those locks that the dataset takes."""
    if any(worker.lock_files for rank in incident.ranks for worker in rank.workers):
        yield from _loader(incident, "stalls", "it loads as all ranks at once, and shows a batch that waits for long")


def _fork(incident: Incident) -> Found:
    """Python itself warns of it, by a warning that it does not show unless it is asked to."""
    versions = {rank.reading.identity.python_version for rank in incident.ranks if rank.reading is not None}
    if any(_warns_of_forks(version) for version in versions):
        command = "PYTHONWARNINGS=default::DeprecationWarning COMMAND"
        yield NextCheck(command, "PYTHONWARNINGS", "Python then warns when a process that has threads is forked")


def _warns_of_forks(version: str) -> bool:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= (3, 12)


def _frozen_worker(incident: Incident) -> Found:
    """In state D the kernel waits for storage; a worker that was stopped says nothing of the data."""
    if any(worker.facts.state == "D" for rank in incident.ranks for worker in rank.workers):
        yield from _loader(incident, "stalls", "it walks the loader, and shows a batch for which storage takes long")


def _one(family: str, why: str) -> Rule:
    """A rule that points to one family of the doctor."""
    return lambda incident: iter((_doctor(incident, family, why),))


def _between_hosts(incident: Incident) -> Found:
    if len({rank.host for rank in incident.ranks}) > 1:
        yield _doctor(incident, "links", "it tries every pair of ranks, and measures which link is slow or closed")
        yield _doctor(incident, "network", "it checks the interfaces, the routes and *_SOCKET_IFNAME of each host")


def _gpu(incident: Incident) -> Found:
    if any(node.gpus for node in incident.nodes):
        yield _doctor(incident, "gpus", "it computes on each GPU, and reads its ECC, Xid and row-remapping errors")


def _of_loader(check: str, why: str) -> Rule:
    return lambda incident: _loader(incident, check, why)


def _descriptors(incident: Incident) -> Found:
    yield _doctor(incident, "system", "it compares the limit of open files with what loaders and NCCL need")
    yield from _loader(incident, "open files", "it shows whether open files grow from epoch to epoch")


def _shared_memory(incident: Incident) -> Found:
    yield _doctor(incident, "system", "it checks the size of /dev/shm, and names the container's option")


def _master(incident: Incident) -> Found:
    if any(node.master_resolves is False for node in incident.nodes):
        yield _doctor(incident, "names", "MASTER_ADDR did not resolve: it looks it up on every host")
    yield _doctor(incident, "master", "it connects to MASTER_ADDR:MASTER_PORT from every rank, within a minute")


BY_CAUSE: dict[str, Rule] = {
    "launch-mismatch": _launch_numbers,
    "rendezvous-missing-ranks": _one("ranks", "it starts such a launch and names ranks that do not come"),
    "rendezvous-unreachable-master": _master,
    "rendezvous-port-conflict": _one("master", "it says which process has the port"),
    "rendezvous-duplicate-rank": _one("ranks", "it names ranks that come twice"),
    "node-not-started": _one("launch", "it says whether the launcher's rendezvous is reached, from which host not"),
    "new-group-mismatch": _groups,
    "uneven-steps": _uneven,
    "gradient-sync-mismatch": _plans,
    "collective-mismatch": _plans,
    "data-dependent-graph": _plans,
    "exception-on-one-rank": _exception,
    "rank-died-before-init": _exception,
    "rank-died": _killed,
    "node-lost": _between_hosts,
    "network-partition": _between_hosts,
    "lock-held-by-process": _lock,
    "fork-deadlock": _fork,
    "interconnect-stall": _between_hosts,
    "device-stall": _gpu,
    "gpu-fault": _gpu,
    "duplicate-gpu": _one("gpus", "it says which ranks share a GPU"),
    "loader-worker-blocked": _of_loader("stalls", "it walks the loader with and without workers, and names the sample"),
    "loader-fork-deadlock": _of_loader("spawn", "it says whether the workers can be started with spawn instead"),
    "loader-worker-frozen": _frozen_worker,
    "loader-worker-died": _of_loader("memory", "it shows what each worker's memory grows to"),
    "file-descriptors-exhausted": _descriptors,
    "shared-memory-exhausted": _shared_memory,
}  # fmt: skip


# ---------------------------------------------------------------- by what was seen beside it


def _warned(incident: Incident) -> Found:
    """What hangwatch warned of while the job ran."""
    kinds = {warning.kind for warning in incident.warnings}
    if kinds & {"uneven-forecast", "plans-differ"}:
        kind = "uneven-forecast" if "uneven-forecast" in kinds else "plans-differ"
        yield _abort(kind, "this was forecast while the job ran: so it ends instead of hanging")
    if kinds & {"sampler-full-copy", "sampler-world-mismatch"}:
        yield from _loader(incident, "shares", "the ranks drew the wrong shares: it shows overlap and gaps")
    if "set-epoch-missing" in kinds:
        yield from _loader(incident, "set_epoch", "two epochs came in one order: it says whether set_epoch changes it")
    if "nccl-environment" in kinds:
        yield _doctor(incident, "settings", "a setting differs between the ranks, or is known to hurt")
    if kinds & {"gpu-memory-imbalance", "gpu-leftover-process"}:
        yield _doctor(incident, "gpus", "a process holds memory on a GPU that is not its own")
    if "timeout-ahead" in kinds:
        yield _doctor(incident, "timeouts", "a group's timeout came before the end of rightful work")


def _missing(incident: Incident) -> Found:
    """Evidence that could not be had, and can be had next time."""
    if incident.verdict.certainty != "undetermined":
        return
    if any(note.source == "stacks" and not note.ok for note in incident.capture):
        yield _doctor(incident, "system", "stacks could not be read: it checks the right to trace (ptrace)")
    if incident.ranks and all(rank.reading is None for rank in incident.ranks):
        why = "dumps and logs show neither stacks nor loaders: under watch both are kept"
        yield NextCheck("hangwatch run -- COMMAND", "report-dir", why)
