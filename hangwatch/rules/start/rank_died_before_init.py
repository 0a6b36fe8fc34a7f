"""A rank that ended before it had come to init_process_group."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import replace

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.process_end import end_of
from hangwatch.facts.rank_end import ENDED_BY_LAUNCHER, follows, tells_of_another
from hangwatch.facts.start.arrivals import Arrivals, ends_the_others, host_of
from hangwatch.model import Certainty, Culprit, Frame, Launched, ProcessFacts, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame

_OF_A_RANK = re.compile(r"\[rank: (\d+)\] Child process with PID (\d+) terminated with code (-?\d+)")  # Lightning's
_OF_SPAWN = re.compile(r"-- Process (\d+) terminated with the following error:\n")  # mp.spawn's
_TRACED = re.compile(r'\s*File "([^"]+)", line (\d+), in (\S+)')
LAST_WORDS_S = 1.5  # seconds; the last output of a process may come a moment after its end
_BY_OTHERS = (-signal.SIGKILL, -signal.SIGTERM)  # an error of its own ends a process otherwise


def rank_died_before_init(case: Case) -> Finding | None:
    """A process that was started as a rank has ended before it registered, and others wait for it, or all are gone."""
    arrivals = Arrivals(case)
    known = [*_ended_ranks(case, arrivals.dead), *_ended_processes(case, arrivals.stillborn)]
    ended = list({each.rank: each for each in reversed(known)}.values())
    waiting = [view.rank for view in arrivals.waiting]
    alive = waiting or [view.rank for view in arrivals.late] or [each.rank for each in arrivals.unborn]
    own = [each for each in ended if not each.follows and (waiting or each.code != 0)]
    if not own or (len(case.ranks) > len(arrivals.dead) + len(arrivals.waiting) + len(arrivals.late)):
        return None  # some ranks had registered: other rules judge that
    own.sort(key=lambda each: (each.at, each.rank))
    first = own[0]
    culprits = sorted({each.rank for each in own})
    tail = f"; {case.wait_words(waiting)} for it in init_process_group" if waiting else ""
    summary = f"{case.name(culprits, capital=True)} ended before init_process_group: {first.why}{words.at(first.where)}"
    return Finding(
        "rank-died-before-init",
        Certainty.LIKELY if first.told else Certainty.PROVEN,
        f"{summary}{tail}.",
        fix=_fix(first),
        culprits=tuple(each.culprit for each in own),
        victims=tuple(waiting),
        evidence=tuple(sentence for each in own[: words.SHOWN] for sentence in each.evidence),
        status=_end_of_the_start(case, own, alive=bool(alive)),
        dead=f"{case.name(culprits)} ended before registering, and the launcher starts no other in its place",
        held=tuple(waiting),
    )


def _fix(first: _Ended) -> str:
    if first.error:
        return f"mend the error that ended it: {first.why}"
    return "let every rank that is started call init_process_group before it may end" if first.code == 0 else ""


def _end_of_the_start(case: Case, own: list[_Ended], *, alive: bool) -> Status:
    """A launcher that ends the ranks after a failure takes exit code 0 for success, and leaves them waiting."""
    first, failed = own[0], any(each.code != 0 for each in own)
    if not alive or (failed and ends_the_others(case)):
        return Status.FAILED
    fresh = case.snapshot.taken_at - first.at < LAST_WORDS_S
    return Status.WAITING if fresh and not first.error else Status.HUNG


class _Ended:
    """One process that has ended, as a rank with a board or without one."""

    def __init__(self, rank: int, pid: int | None, host: str, facts: ProcessFacts | None, at: float | None) -> None:
        self.rank, self.pid, self.host = rank, pid, host
        self.at = at or float("inf")
        self.code = facts.exit_code if facts is not None else None
        self.how = end_of(facts)
        self.error = ""
        self.where: Frame | None = None
        self.told = False  # its launcher says so, in words that the program may print as well
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
        if self.pid is None:
            return [f"the process that was started as rank {self.rank} has ended{error}, as its launcher says"]
        return [f"pid {self.pid}, which was started as rank {self.rank}, has ended: {self.how}{error}"]


def _ended_ranks(case: Case, dead: Iterable[RankView]) -> Iterable[_Ended]:
    for view in dead:
        if (other := _other_that_failed(view)) is not None and other.rank not in case.ranks:
            yield other
            continue
        exception = view.exception
        at = view.evidence.ended_at or (exception.at if exception is not None else None)
        ended = _Ended(view.rank, view.pid, view.evidence.host, view.evidence.process, at)
        if exception is not None:
            ended.error = words.error(exception)
            ended.where = user_frame(exception.frames)
            ended.follows = follows(exception)
        elif view.evidence.crash_trace or (view.evidence.last_output and ended.code not in _BY_OTHERS):
            ended.error = _last_words(view)
            ended.follows = ended.follows or tells_of_another(ended.error)
        yield ended


def _other_that_failed(view: RankView) -> _Ended | None:
    """The rank of which its launcher says, in the output that this one shares, that it failed before the others ended.

    Lightning's launcher runs in the process of rank 0, and tells the code; mp.spawn's tells the error.
    """
    output = view.evidence.last_output if view.exception is None else ""
    if child := _OF_A_RANK.search(output):
        facts = ProcessFacts(int(child[2]), "X", exit_code=int(child[3]))
        return _of_output(view, int(child[1]), facts, output[: child.start()] if facts.exit_code == 1 else "")
    if spawned := _OF_SPAWN.search(output):
        return _of_output(view, int(spawned[1]), None, output[spawned.end() :])
    return None


def _of_output(view: RankView, rank: int, facts: ProcessFacts | None, output: str) -> _Ended:
    """The end of `rank`, with the error at the end of that output."""
    pid = facts.pid if facts is not None else None
    ended = _Ended(rank, pid, view.evidence.host, facts, view.evidence.ended_at)
    ended.told = True
    if error := _last_words(replace(view, evidence=replace(view.evidence, last_output=output))):
        ended.error, ended.where, ended.follows = error, _last_line(output), tells_of_another(error)
    return ended


def _last_line(output: str) -> Frame | None:
    """The user's innermost line in the last traceback."""
    frames = [Frame(file, int(line), function) for file, line, function in _TRACED.findall(output)]
    return user_frame(tuple(reversed(frames)))


def _last_words(view: RankView) -> str:
    if view.evidence.crash_trace:
        return view.evidence.crash_trace.strip().splitlines()[0][:200]
    lines = [line for line in view.evidence.last_output.splitlines() if line.strip()]
    return next((line.strip()[:200] for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)), "")


def _ended_processes(case: Case, stillborn: Iterable[Launched]) -> Iterable[_Ended]:
    for each in stillborn:
        facts = ProcessFacts(each.pid, "X", exit_code=each.exit_code)
        yield _Ended(each.rank, each.pid, host_of(case), facts, each.ended_at)


def ended_beside_the_ranks(case: Case) -> Finding | None:
    """A launcher of the user's own, or a rank, starts the ranks itself, and as many of these have died as ranks lack.

    Such a child has no RANK in its environment, so nothing but their number says that it was to become one.
    """
    arrivals = Arrivals(case)
    absent, waiting = arrivals.absent, [view.rank for view in arrivals.waiting]
    died = [each for each in _children(case) if each[1].state == "Z" and each[1].exit_code not in (None, 0)]
    if not absent or not waiting or len(died) != len(absent) or arrivals.late or arrivals.unborn:
        return None
    whose, first = died[0]
    longest, closed = max(arrivals.waited(each) for each in arrivals.waiting), arrivals.no_other_rank_can_join
    return Finding(
        "rank-died-before-init",
        Certainty.LIKELY,
        f"{case.name(absent, capital=True)} ended before init_process_group: pid {first.pid}, which {whose} started as"
        f" it started other ranks, has ended ({end_of(first)}); {case.wait_words(waiting)} in"
        f" init_process_group{words.at(arrivals.waiting[0].where)}.",
        culprits=tuple(Culprit(rank, first.pid if len(died) == 1 else None, host_of(case)) for rank in absent),
        victims=tuple(waiting),
        evidence=tuple(
            f"pid {facts.pid}, a child process of {parent}, has ended: {end_of(facts)}"
            for parent, facts in died[: words.SHOWN]
        ),
        status=Status.HUNG if closed or longest > case.snapshot.start_patience_s else Status.WAITING,
        dead="all ranks must be of this machine, and their launcher starts no more" if closed else "",
        held=tuple(waiting),
    )


def _children(case: Case) -> Iterable[tuple[str, ProcessFacts]]:
    """The processes that the parents of ranks have started beside these, each with whose child it is."""
    parents = {view.evidence.process.parent for view in case if view.evidence.process is not None}
    for view in case:
        if view.pid in parents:
            yield from ((f"rank {view.rank}", child.facts) for child in view.evidence.children)
    ranks = {view.pid for view in case}
    for each in case.snapshot.others:
        if each.facts.parent in parents - ranks and each.facts.pid not in ranks:
            yield "the launcher", each.facts
