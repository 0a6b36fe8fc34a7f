"""The start of a job: ranks that never come, come twice or end before they have come; nodes that never join."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..frames import name_of, user_frame
from ..records import Certainty, Culprit, Launched, ProcessEvidence, ProcessFacts, Stage, Status
from . import words
from .aborts import CONSEQUENCE, ENDED_BY_LAUNCHER
from .arrivals import LATE, Arrivals, address, ends_the_others, launcher_of, main_stack, registered
from .case import IDLE_CPU_S, Case, RankView
from .finding import Finding, Rule
from .lockfile import lock_across_collective, stale_file_lock
from .master import port_conflict, unreachable_master
from .newgroup import new_group_mismatch
from .processes import end_of

WORDS_S = 1.5  # the last words of a process may come a moment after its end
SETTLED_S = 3.0  # two claimants of one rank may be an old process on its way out and its successor


# ------------------------------------------------------------------------------------------ ended before they came


def rank_died_before_init(case: Case) -> Finding | None:
    """A process that was started as a rank has ended before it registered, and others wait for it, or all are gone."""
    arrivals = Arrivals(case)
    ended = [*_ended_ranks(arrivals.dead), *_ended_processes(case, arrivals.stillborn)]
    waiting = [view.rank for view in arrivals.waiting]
    alive = waiting or [view.rank for view in arrivals.late] or [each.rank for each in arrivals.unborn]
    own = [each for each in ended if not each.follows and (waiting or each.code != 0)]
    if not own or (len(case.ranks) > len(arrivals.dead) + len(arrivals.waiting) + len(arrivals.late)):
        return None  # some have been members: that is another story
    own.sort(key=lambda each: (each.at, each.rank))
    first = own[0]
    culprits = sorted({each.rank for each in own})
    tail = f"; {case.wait_words(waiting)} for it in init_process_group" if waiting else ""
    summary = f"{case.name(culprits, capital=True)} ended before init_process_group: {first.why}{words.at(first.where)}"
    return Finding(
        "rank-died-before-init",
        Certainty.PROVEN,
        f"{summary}{tail}.",
        fix=f"mend the error that ended it: {first.why}" if first.error else "",
        culprits=tuple(each.culprit for each in own),
        victims=tuple(waiting),
        evidence=tuple(sentence for each in own[: words.SHOWN] for sentence in each.evidence),
        status=_end_of_the_start(case, first, alive=bool(alive)),
        dead=f"{case.name(culprits)} ended before registering, and the launcher starts no other in its place",
        held=tuple(waiting),
    )


def _end_of_the_start(case: Case, first: _Ended, *, alive: bool) -> Status:
    if not alive or ends_the_others(case):
        return Status.FAILED
    fresh = case.snapshot.taken_at - first.at < WORDS_S
    return Status.WAITING if fresh and not first.error else Status.HUNG


class _Ended:
    """One process that has ended, as a rank with a board or without one."""

    def __init__(self, rank: int, pid: int | None, host: str, facts: ProcessFacts | None, at: float | None) -> None:
        self.rank, self.pid, self.host = rank, pid, host
        self.at = at or float("inf")
        self.code = facts.exit_code if facts is not None else None
        self.how = end_of(facts)
        self.error = ""
        self.where = None
        self.follows = self.code in ENDED_BY_LAUNCHER

    @property
    def why(self) -> str:
        return self.error or self.how

    @property
    def culprit(self) -> Culprit:
        return Culprit(self.rank, self.pid, self.host, where=self.where)

    @property
    def evidence(self) -> list[str]:
        error = f", after {self.error}{words.at(self.where)}" if self.error else ""
        return [f"pid {self.pid}, which was started as rank {self.rank}, has ended: {self.how}{error}"]


def _ended_ranks(dead: Iterable[RankView]) -> Iterable[_Ended]:
    for view in dead:
        exception = view.exception
        at = view.evidence.ended_at or (exception.at if exception is not None else None)
        ended = _Ended(view.rank, view.pid, view.evidence.host, view.evidence.process, at)
        if exception is not None:
            ended.error = words.error(exception)
            ended.where = user_frame(exception.frames)  # type: ignore[assignment]
            ended.follows = bool(CONSEQUENCE.search(ended.error))
        elif view.evidence.crash_trace or view.evidence.last_output:
            ended.error = _last_words(view)
        yield ended


def _last_words(view: RankView) -> str:
    if view.evidence.crash_trace:
        return view.evidence.crash_trace.strip().splitlines()[0][:200]
    lines = [line for line in view.evidence.last_output.splitlines() if line.strip()]
    return next((line.strip()[:200] for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)), "")


def _ended_processes(case: Case, stillborn: Iterable[Launched]) -> Iterable[_Ended]:
    for each in stillborn:
        facts = ProcessFacts(each.pid, "X", exit_code=each.exit_code)
        yield _Ended(each.rank, each.pid, _host(case), facts, each.ended_at)


def _host(case: Case) -> str:
    return case.snapshot.nodes[0].host if len(case.snapshot.nodes) == 1 else ""


# ------------------------------------------------------------------------------------------ twice


def duplicate_rank(case: Case) -> Finding | None:
    """Two living processes claim one rank, and none of them is the other's child."""
    claims = _claims(case)
    rank, pids = next(((rank, pids) for rank, pids in sorted(claims.items()) if len(pids) > 1), (None, {}))
    if rank is None or any(registered(view) for view in case if not view.dead and view.rank != rank):
        return None
    oldest_first = sorted(pids, key=lambda pid: pids[pid])
    settled = case.snapshot.taken_at - max(pids.values()) > SETTLED_S
    named = words.listed(f"pid {pid}" for pid in oldest_first)
    apart = max(pids.values()) - min(pids.values())
    return Finding(
        "rendezvous-duplicate-rank",
        Certainty.PROVEN,
        f"{words.plural(len(pids), 'process')} claim rank {rank} at the same time: {named}.",
        fix=_one_too_many(oldest_first, apart),
        culprits=tuple(Culprit(rank, pid, _host(case)) for pid in oldest_first),
        victims=tuple(view.rank for view in Arrivals(case).waiting if view.rank != rank),
        evidence=(
            f"{named} have RANK={rank} in their environment, and lived at the same time",
            f"pid {oldest_first[-1]} was started {words.duration(apart)} after pid {oldest_first[0]}",
        ),
        status=_status_of_twins(case, settled),
        awaited=(rank,),
    )


def _status_of_twins(case: Case, settled: bool) -> Status:
    if case.ranks and all(view.dead or view.reading is None or _failed(view) for view in case):
        return Status.FAILED
    return Status.HUNG if settled else Status.WAITING


def _failed(view: RankView) -> bool:
    return view.reading is not None and view.reading.exception is not None and view.reading.exception.fatal


def _one_too_many(oldest_first: list[int], apart: float) -> str:
    if apart > 60:
        return f"kill {oldest_first[0]}, which is left from an earlier start"
    return "give every process its own RANK, and start each rank once"


def _claims(case: Case) -> dict[int, dict[int, float]]:
    """Rank to the processes that claim it and have lived at the same time, each with its start."""
    found: dict[int, dict[int, float]] = {}
    parents: dict[int, int | None] = {}
    for entry in case.snapshot.ranks:
        if entry.pid is not None and (entry.process is None or entry.process.state not in ("X", "Z")):
            started = entry.reading.identity.started_at if entry.reading is not None else 0.0
            found.setdefault(entry.rank, {})[entry.pid] = started
            parents[entry.pid] = entry.process.parent if entry.process is not None else None
    for each in case.snapshot.launched:
        lived_on = [other for other in case.snapshot.launched if other.rank == each.rank and _overlap(each, other)]
        if each.ended_at is None or lived_on:
            found.setdefault(each.rank, {}).setdefault(each.pid, each.started_at)
    return {rank: {pid: at for pid, at in pids.items() if parents.get(pid) not in pids} for rank, pids in found.items()}


def _overlap(one: Launched, other: Launched) -> bool:
    ends = (one.ended_at or float("inf"), other.ended_at or float("inf"))
    return one.pid != other.pid and min(ends) - max(one.started_at, other.started_at) > SETTLED_S


# ------------------------------------------------------------------------------------------ never


def node_not_started(case: Case) -> Finding | None:
    """torchrun waits for other nodes, and has started no rank."""
    waiting = [(each, frame) for each in case.snapshot.launchers if (frame := _next_rendezvous(each)) is not None]
    if not waiting or any(not view.dead for view in case):
        return None
    expected = case.job.nodes_expected or max(_nodes(each.facts.command) for each, _ in waiting)
    if expected == 1:
        return None  # it is about to start its ranks
    works = any((each.facts.cpu_delta_s or 0) > IDLE_CPU_S or each.facts.state == "R" for each, _ in waiting)
    hosts = len(case.snapshot.nodes) or 1
    joined = f"{len(waiting)} of {expected} nodes" if expected else words.plural(len(waiting), "node")
    since = min(each.facts.started_at or case.snapshot.taken_at for each, _ in waiting)
    waited = case.snapshot.taken_at - since
    here = "on this machine" if hosts == 1 else f"on {hosts} machines"
    return Finding(
        "node-not-started",
        Certainty.LIKELY,
        f"torchrun waits for more nodes: {joined} {words.verb(len(waiting), 'has', 'have')} come as far as is known"
        f" {here}, and no rank has been started for {words.duration(waited)}.",
        evidence=tuple(_rendezvous_evidence(each) for each, _ in waiting[: words.SHOWN]),
        status=Status.HUNG if waited > case.snapshot.start_patience_s and not works else Status.WAITING,
    )


def _next_rendezvous(launcher: ProcessEvidence) -> object | None:
    stack = main_stack(launcher.stacks)
    frames = stack.frames if stack is not None else ()
    return next((frame for frame in frames if name_of(frame.function) == "next_rendezvous"), None)


def _nodes(command: str) -> int:
    """The least number of nodes that a launcher's command line asks for; 0 where it does not say."""
    found = re.search(r"--nnodes[= ](\d+)", command)
    if found is not None:
        return int(found[1])
    return 1 if re.search(r"torchrun|torch[./]distributed[./](run|launch)", command) else 0


def _rendezvous_evidence(launcher: ProcessEvidence) -> str:
    endpoint = re.search(r"--(?:rdzv[-_]endpoint|master[-_](?:addr|port))[= ](\S+)", launcher.facts.command)
    where = f" at {endpoint[1]}" if endpoint else ""
    return f"torchrun (pid {launcher.facts.pid}) stands in next_rendezvous{where} and has no ranks below it"


def missing_ranks(case: Case) -> Finding | None:
    """Ranks wait for others of which nobody has ever seen a process."""
    arrivals = Arrivals(case)
    absent, waiting = arrivals.absent, [view.rank for view in arrivals.waiting]
    if not absent or not waiting or arrivals.late or arrivals.unborn:
        return None
    came, size = len(case.ranks), case.size
    longest = max(arrivals.age(view) for view in arrivals.waiting)
    patience = case.snapshot.start_patience_s * (LATE if arrivals.still_starting else 1.0)
    closed = arrivals.nobody_else_comes
    return Finding(
        "rendezvous-missing-ranks",
        Certainty.PROVEN if closed else Certainty.LIKELY,
        f"{case.name(absent, capital=True)} never came: {came} of {size} ranks {words.verb(came, 'was', 'were')}"
        f" started{_by_whom(case)}; {case.wait_words(waiting)} in init_process_group"
        f"{words.at(arrivals.waiting[0].where)}.",
        fix=_make_equal(case, came),
        culprits=tuple(Culprit(rank, host=_host(case)) for rank in absent[:64]),
        victims=tuple(waiting),
        evidence=tuple(_missing_evidence(case, arrivals, longest)),
        status=Status.HUNG if closed or longest > patience else Status.WAITING,
        dead="all ranks must be of this machine, and their launcher starts no more" if closed else "",
        held=tuple(waiting),
    )


def _by_whom(case: Case) -> str:
    return {"spawn": " by mp.spawn", "torchrun": " by torchrun"}.get(launcher_of(case), "")


def _make_equal(case: Case, came: int) -> str:
    if launcher_of(case) == "spawn":
        return f"mp.spawn(..., nprocs={case.size}), or init_process_group(..., world_size={came})"
    return ""


def _missing_evidence(case: Case, arrivals: Arrivals, longest: float) -> Iterable[str]:
    here = ", ".join(f"rank {view.rank} is pid {view.pid}" for view in list(case)[: words.SHOWN])
    yield f"WORLD_SIZE is {case.size}, and there are processes for {len(case.ranks)} ranks: {here}"
    sizes = {view.reading.identity.world_size for view in case if view.reading is not None}
    if len(sizes - {None}) > 1:
        yield f"the ranks do not agree about WORLD_SIZE: {words.listed(str(size) for size in sorted(sizes - {None}))}"  # type: ignore[type-var]
    yield f"they have waited for {words.duration(longest)} at most"
    if arrivals.nobody_else_comes:
        addr, port = address(arrivals.waiting[0])
        yield f"all ranks must be of this machine ({addr}:{port}), and their launcher only waits for their end"


# ------------------------------------------------------------------------------------------ late


def late_rank(case: Case) -> Finding | None:
    """Ranks wait for one whose process lives, and which has not come yet: it may still."""
    arrivals = Arrivals(case)
    waiting = [view.rank for view in arrivals.waiting]
    if not waiting or not (arrivals.late or arrivals.unborn):
        return None
    late = sorted({*(view.rank for view in arrivals.late), *(each.rank for each in arrivals.unborn)})
    first = next(iter(arrivals.late), None)
    ages = [case.snapshot.taken_at - each.started_at for each in arrivals.unborn]
    oldest = max([*ages, *map(arrivals.age, arrivals.late)])
    doing = f": it is at {words.place(first.where)}" if first is not None and first.where is not None else ""
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.name(late, capital=True)} {words.verb(len(late), 'has', 'have')} not called init_process_group for"
        f" {words.duration(oldest)}{doing}; {case.wait_words(waiting)} for {words.verb(len(late), 'it', 'them')}.",
        culprits=(
            *(view.culprit() for view in arrivals.late),
            *(Culprit(each.rank, each.pid, _host(case)) for each in arrivals.unborn),
        ),
        victims=tuple(waiting),
        evidence=tuple(_late_evidence(arrivals)),
        status=_status_of_late(arrivals, oldest),
        stage=Stage.START,
    )


def _status_of_late(arrivals: Arrivals, oldest: float) -> Status:
    """Long patience with a process that lives, unless a fact holds each of those that are awaited."""
    if any(view.works for view in arrivals.late):
        return Status.WAITING
    held = not arrivals.unborn and all(view.evidence.held and view.evidence.stalled for view in arrivals.late)
    return Status.HUNG if held or oldest > LATE * arrivals.case.snapshot.start_patience_s else Status.WAITING


def _late_evidence(arrivals: Arrivals) -> Iterable[str]:
    for view in arrivals.late[: words.SHOWN]:
        yield f"rank {view.rank} (pid {view.pid}) lives and has not called init_process_group{words.at(view.where)}"
    for each in arrivals.unborn[: words.SHOWN]:
        yield f"pid {each.pid}, which was started as rank {each.rank}, lives and has not imported torch yet"


GONE: tuple[Rule, ...] = (port_conflict, duplicate_rank, rank_died_before_init)
RULES: tuple[Rule, ...] = (
    node_not_started,
    stale_file_lock,
    lock_across_collective,
    unreachable_master,
    late_rank,
    missing_ranks,
    new_group_mismatch,
)
