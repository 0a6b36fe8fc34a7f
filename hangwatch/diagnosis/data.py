"""The loaders: a rank that waits for a batch, and what its workers do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..frames import name_of, origin
from ..records import Certainty, Culprit, NodeFacts, Stage, Status
from . import words
from .arrivals import ends_the_others
from .case import Case, RankView
from .feeding import Feeding, Worker
from .finding import Finding, Rule

KILLED = re.compile(
    r"DataLoader worker \(pid\(?s?\)? ([\d, ]+)\) (?:is killed by signal: ([\w ]+)|exited unexpectedly)"
)
CAUGHT = re.compile(r"Caught \w+ in DataLoader worker process (\d+)")
BUS_ERROR = re.compile(r"bus error", re.IGNORECASE)
NO_SHARED_MEMORY = re.compile(
    r"no space left on device.*(/torch_|/dev/shm|shared memory)"
    r"|(/torch_|/dev/shm|shared memory).*no space left on device"
    r"|unable to (resize|mmap|allocate) .*shared memory|out of shared memory|insufficient shared memory",
    re.IGNORECASE | re.DOTALL,
)
NO_DESCRIPTORS = re.compile(r"too many open files|received \d+ items of ancdata|EMFILE|errno: ?24\b", re.IGNORECASE)
# What a rank meets when a worker is gone in the middle of handing over a batch, and where.
BROKEN_OFF = frozenset({"ConnectionResetError", "EOFError", "BrokenPipeError", "ConnectionRefusedError"})
TAKING_OVER = frozenset({"_try_get_data", "rebuild_storage_fd"})
SAME_MOMENT_S = 0.05
NOTICED_S = 3.0  # until then gloo's ranks have noticed that a peer is gone, and fail too
LOW_LIMIT = 4096  # of open files: with many workers and many tensors to a batch that is not much
NEAR = 0.95  # of the limit of open descriptors
SHM_LEFT = 0.02  # share of /dev/shm below which it counts as full
SHM_LEFT_BYTES = 1 << 20
FROZEN_S = 4.5  # who stops a worker to look at it may let it go on after a moment


# ------------------------------------------------------------------------------------------ what the errors say


def shared_memory_exhausted(case: Case) -> Finding | None:
    """Workers found no room in /dev/shm: as their errors say, or as a full one and a waiting rank show."""
    hit = [view for view in case if NO_SHARED_MEMORY.search(_error(view)) or _bus_error(view)]
    full = [node for node in case.snapshot.nodes if _is_full(node)]
    starved = [each.view for each in _feedings(case) if full and each.in_trouble]
    if not hit and not starved:
        return None
    sizes = [f"/dev/shm on {node.host}: {_bytes(node.shm_free)} of {_bytes(node.shm_total)} free" for node in full]
    return _resource(
        case,
        "shared-memory-exhausted",
        hit or starved,
        f"the workers found no room in /dev/shm{_room(full)}",
        _certainty(hit[0]) if hit and (full or NO_SHARED_MEMORY.search(_error(hit[0]))) else Certainty.LIKELY,
        sizes,
        tuple(culprit for view in hit for culprit in _failed_workers(view)),
    )


def file_descriptors_exhausted(case: Case) -> Finding | None:
    """A rank or one of its workers is at its limit of open files."""
    hit = [view for view in case if NO_DESCRIPTORS.search(_error(view))]
    near = [(each.view, facts) for each in _feedings(case) for facts in each.processes if _is_near(facts)]
    lost = [each for each in _feedings(case) if each.lost_batch and any(_is_low(worker) for worker in each.workers)]
    if lost and not hit and not near:
        return _lost_for_want_of_descriptors(case, lost)
    if not hit and not near:
        return None
    counts = [
        f"pid {facts.pid} of rank {view.rank} has {facts.descriptors:,} of {facts.descriptor_limit:,} descriptors open"
        for view, facts in near[: words.SHOWN]
    ]
    views = hit or list({view.rank: view for view, _ in near}.values())
    return _resource(
        case,
        "file-descriptors-exhausted",
        views,
        "no file descriptors are left, so that workers cannot pass their batches on",
        _certainty(hit[0]) if hit else Certainty.LIKELY,
        counts,
    )


def _is_low(worker: Worker) -> bool:
    """A low limit, and the thread that hands descriptors on is gone."""
    limit = worker.facts.descriptor_limit
    return limit is not None and limit <= LOW_LIMIT and worker.cannot_serve


def _lost_for_want_of_descriptors(case: Case, lost: list[Feeding]) -> Finding:
    hit = [(each, worker) for each in lost for worker in each.workers if _is_low(worker)]
    sentences = [
        f"worker {worker.name} of rank {each.view.rank} (pid {worker.pid}) may open {worker.facts.descriptor_limit:,}"
        " files, and its thread that hands descriptors on has ended"
        for each, worker in hit[: words.SHOWN]
    ]
    sentences.append("all workers wait for work, although a batch is awaited: it was lost on its way")
    what = "a batch was lost on its way, as happens when a worker has no file descriptors left"
    views = [each.view for each in lost]
    return _resource(case, "file-descriptors-exhausted", views, what, Certainty.LIKELY, sentences)


def loader_worker_died(case: Case) -> Finding | None:
    """A worker process is gone: the rank's error names it, or the rank still waits for its batch."""
    reported = [(view, match) for view in case if (match := KILLED.search(_error(view))) is not None]
    if reported:
        view, match = reported[0]
        pids = [int(pid) for pid in re.findall(r"\d+", match[1])]
        how = f"killed by signal {match[2].strip()}" if match[2] else "it exited unexpectedly"
        return _died(case, view, pids, how, [f"rank {view.rank} raised: {_first_line(_error(view))}"])
    broken = next((view for view in case if _broke_off(view)), None)
    if broken is not None:
        said = f"rank {broken.rank} raised: {_first_line(_error(broken))}, while it took a batch over from a worker"
        return _died(case, broken, [], "it ended while it handed a batch over", [said])
    for each in _feedings(case):
        if each.dead:
            how = each.dead[0].ended
            sentences = [f"worker {worker.name} of rank {each.view.rank} is {worker.life}" for worker in each.dead]
            return _died(case, each.view, [worker.pid for worker in each.dead], how, sentences)
    return None


def _broke_off(view: RankView) -> bool:
    """Its error says that the other end is gone, and that end is a loader worker."""
    error = view.exception
    if error is None or error.type not in BROKEN_OFF or not _error(view):
        return False
    functions = {name_of(frame.function) for frame in error.frames if origin(frame.file) == "torch"}
    return bool(functions & TAKING_OVER)


def _died(case: Case, view: RankView, pids: list[int], how: str, evidence: list[str]) -> Finding:
    waiting = [rank for rank in case.blocked if rank != view.rank]
    kills = sum(node.oom_kills or 0 for node in case.snapshot.nodes)
    memory = ", out of memory" if kills and "kill" in how.lower() else ""
    if kills:
        evidence = [*evidence, f"{words.plural(kills, 'out-of-memory kill')} in the job's cgroup"]
    named = f" ({words.listed(f'pid {pid}' for pid in pids[: words.SHOWN])})" if pids else ""
    tail = f"; {case.wait_words(waiting)} for rank {view.rank}" if waiting else ""
    return Finding(
        "loader-worker-died",
        _certainty(view) if _error(view) else Certainty.PROVEN,
        f"A loader worker of rank {view.rank} died{named}: {how}{memory}{tail}.",
        culprits=tuple(Culprit(view.rank, pid, view.evidence.host, process="loader-worker") for pid in pids or (None,)),
        victims=(view.rank, *waiting),
        step=view.step,
        evidence=tuple(evidence),
        status=_after_an_error(case, [view]),
        stage=Stage.DATA,
    )


def _resource(
    case: Case,
    cause: str,
    views: list[RankView],
    what: str,
    certainty: Certainty,
    evidence: list[str],
    workers: tuple[Culprit, ...] = (),
) -> Finding:
    ranks = [view.rank for view in views]
    errors = [f"rank {view.rank}: {_first_line(_error(view))}" for view in views[: words.SHOWN] if _error(view)]
    return Finding(
        cause,
        certainty,
        f"{case.name(ranks, capital=True)} {words.verb(len(ranks), 'gets', 'get')} no more batches: {what}.",
        culprits=workers or tuple(view.culprit() for view in views),
        victims=case.victims(ranks),
        step=views[0].step,
        evidence=(*errors, *evidence),
        status=_after_an_error(case, views) if errors else None,
        stage=Stage.DATA,
        awaited=tuple(ranks),
    )


def _after_an_error(case: Case, views: list[RankView]) -> Status | None:
    """The job comes down, unless others still wait for a rank that has been dead for a while."""
    raised = [view for view in views if view.dead or view.raised]
    if not raised:
        return None
    others = [view for view in case if view not in views and not view.dead]
    held = any(view.rank in case.blocked for view in others) and all(_long_dead(case, view) for view in raised)
    return Status.HUNG if held and not ends_the_others(case) else Status.FAILED


def _long_dead(case: Case, view: RankView) -> bool:
    ended = view.evidence.ended_at
    return view.dead and ended is not None and case.snapshot.taken_at - ended > NOTICED_S


def _error(view: RankView) -> str:
    """The error that ended it, or after which it has begun no step any more."""
    reading = view.reading
    exception = view.exception
    if reading is None or exception is None:
        return ""
    went_on = any(step.at > exception.at + SAME_MOMENT_S for step in reading.steps[-1:])
    return f"{exception.type}: {exception.message}" if exception.fatal or not went_on else ""


def _certainty(view: RankView) -> Certainty:
    """An error that a program has handled is not known to be why it stands now."""
    return Certainty.PROVEN if view.raised or view.dead else Certainty.LIKELY


def _first_line(text: str) -> str:
    """The line that says most: of an error that a worker has passed on, the last one."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    return (lines[-1] if "Caught" in lines[0] else lines[0])[:200]


def _failed_workers(view: RankView) -> Iterator[Culprit]:
    """The workers that its error names, by pid or by index."""
    text = _error(view)
    killed, caught = KILLED.search(text), CAUGHT.search(text)
    pids = [int(pid) for pid in re.findall(r"\d+", killed[1])] if killed is not None else []
    if caught is not None and view.reading is not None:
        index = int(caught[1])
        pids += [loader.worker_pids[index] for loader in view.reading.loaders if index < len(loader.worker_pids)][:1]
    for pid in pids:
        yield Culprit(view.rank, pid, view.evidence.host, process="loader-worker")


def _bus_error(view: RankView) -> bool:
    match = KILLED.search(_error(view))
    return match is not None and BUS_ERROR.search(match[2] or "") is not None


def _is_full(node: NodeFacts) -> bool:
    if node.shm_total is None or node.shm_free is None:
        return False
    return node.shm_free < max(SHM_LEFT * node.shm_total, min(SHM_LEFT_BYTES, node.shm_total / 2))


def _room(nodes: Iterable[NodeFacts]) -> str:
    sizes = [node.shm_total for node in nodes if node.shm_total]
    return f", which has {_bytes(min(sizes))} in all" if sizes else ""


def _bytes(count: int | None) -> str:
    if count is None:
        return "?"
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return words.plural(count, "byte")


def _is_near(facts: object) -> bool:
    count, limit = getattr(facts, "descriptors", None), getattr(facts, "descriptor_limit", None)
    return count is not None and limit is not None and count >= NEAR * limit


# ------------------------------------------------------------------------------------------ what the workers do


def loader_worker_frozen(case: Case) -> Finding | None:
    """A worker is stopped, or sleeps uninterruptibly in the kernel, while its rank waits for a batch."""
    found = [(each, worker) for each in _feedings(case) for worker in each.frozen]
    if not found:
        return None
    stopped = all(worker.state in "Tt" for _, worker in found)
    each, worker = found[0]
    ranks = sorted({each.view.rank for each, _ in found})
    return Finding(
        "loader-worker-frozen",
        Certainty.PROVEN if stopped else Certainty.LIKELY,
        f"{_worker_of(each, worker)} {worker.how_frozen}{words.at(worker.where)};"
        f" rank {each.view.rank} waits for its batch{words.at(each.view.where)}{_and_others(case, ranks)}.",
        fix=f"kill -CONT {' '.join(str(worker.pid) for _, worker in found[:8])}" if stopped else "",
        culprits=tuple(each.culprit(worker) for each, worker in found),
        victims=_victims(case, ranks),
        step=each.view.step,
        evidence=tuple(sentence for each, worker in found[: words.SHOWN] for sentence in each.evidence(worker)),
        status=None if not stopped else Status.HUNG if case.still(ranks, FROZEN_S) else Status.WAITING,
        dead=f"pid {worker.pid} cannot run until continued, and its batch is awaited" if stopped else "",
        held=tuple(ranks),
        awaited=tuple(ranks),
    )


def loader_fork_deadlock(case: Case) -> Finding | None:
    """All workers of a rank stand in a lock from before the fork: whoever held it is no part of their process."""
    found = [each for each in _feedings(case) if each.inherited]
    if not found:
        return None
    proven = all(worker.alone for each in found for worker in each.busy)
    ranks = [each.view.rank for each in found]
    alike = len(found) == len([view for view in case if not view.dead])
    first, worker = found[0], found[0].busy[0]
    workers = [(each, worker) for each in found for worker in each.busy]
    return Finding(
        "loader-fork-deadlock",
        Certainty.PROVEN if proven else Certainty.LIKELY,
        f"{words.plural(len(workers), 'loader worker')} of {case.name(ranks)}"
        f" {words.verb(len(workers), 'waits', 'wait')} for a lock or a thread pool that"
        f" {words.verb(len(workers), 'its', 'their')} parent held at the fork, and nobody can let it go"
        f"{words.at(worker.where)}{_and_others(case, ranks)}.",
        culprits=() if alike else tuple(each.culprit(worker) for each, worker in workers),
        victims=_victims(case, ranks),
        step=first.view.step,
        evidence=tuple(sentence for each, worker in workers[: words.SHOWN] for sentence in each.evidence(worker))
        + tuple(_holder(each) for each in found[:1] if _holder(each)),
        status=Status.HUNG if proven else None,
        dead="every thread of these workers waits, without a timeout, for another of its own process" if proven else "",
        held=tuple(ranks),
        awaited=tuple(ranks),
    )


def loader_worker_blocked(case: Case) -> Finding | None:
    """A rank waits for a batch, and a worker stands in the user's code for it."""
    feeding = [each for each in _feedings(case) if each.suspects]
    if not feeding:
        return None
    blamed = [(each, worker) for each in feeding for worker in each.suspects]
    ranks = [each.view.rank for each in feeding]
    each, worker = blamed[0]
    works = any(worker.works for _, worker in blamed)
    sample = f" on {worker.task}" if worker.task else ""
    return Finding(
        "loader-worker-blocked",
        Certainty.LIKELY,
        f"{_worker_of(each, worker)} {'still works' if worker.works else 'is stuck'} in"
        f" {worker.place}{sample}: {worker.how_stuck};"
        f" rank {each.view.rank} waits for its batch{words.at(each.view.where)}{_and_others(case, ranks)}.",
        culprits=tuple(each.culprit(worker) for each, worker in blamed),
        victims=_victims(case, ranks),
        step=each.view.step,
        evidence=tuple(sentence for each, worker in blamed[: words.SHOWN] for sentence in each.evidence(worker)),
        status=Status.WAITING if works else Status.HUNG if case.stalled(ranks) else Status.WAITING,
        awaited=tuple(ranks),
    )


def _feedings(case: Case) -> Iterator[Feeding]:
    """The ranks that wait for a batch of their workers."""
    for view in case:
        if not view.dead and not view.stopped:
            feeding = Feeding(view)
            if feeding.waits:
                yield feeding


def _worker_of(feeding: Feeding, worker: Worker) -> str:
    return f"Loader worker {worker.name} of rank {feeding.view.rank} (pid {worker.pid})"


def _victims(case: Case, ranks: list[int]) -> tuple[int, ...]:
    return tuple(sorted({*ranks, *case.blocked}))


def _and_others(case: Case, ranks: list[int]) -> str:
    others = [rank for rank in case.blocked if rank not in ranks]
    return f", and {case.wait_words(others)} for {words.ranks(ranks)}" if others else ""


def _holder(feeding: Feeding) -> str:
    """A thread of the rank that may hold the lock: one that runs the program's code in the parent."""
    thread = feeding.parent_thread
    return f"rank {feeding.view.rank} has thread {thread.name!r}, which the workers have not" if thread else ""


GONE: tuple[Rule, ...] = (
    shared_memory_exhausted,
    file_descriptors_exhausted,
    loader_worker_died,
    loader_worker_frozen,
)  # judged with the processes that are gone: before anything else
RULES: tuple[Rule, ...] = (loader_fork_deadlock, loader_worker_blocked)
