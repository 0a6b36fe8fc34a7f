"""An orphan of a rank holds the output pipe that its launcher reads."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import CHILD_QUIET_IO
from hangwatch.facts.start.arrivals import host_of
from hangwatch.facts.start.launchers import END_SEEN_S, place_of
from hangwatch.model import Certainty, Culprit, Pipe, ProcessEvidence, Status
from hangwatch.ranks.processes import computed
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import main_thread_of

_WAITS = (Doing.LOCK, Doing.JOIN_THREADS, Doing.JOIN_CHILD, Doing.SOCKET)
_READS = ("read", "readv", "poll", "ppoll", "select", "pselect6", "splice")


def orphan_holds_pipe(case: Case) -> Finding | None:
    """All ranks have ended, and the reader of their output waits for an end of file that an orphan prevents."""
    if any(not view.dead for view in case) or any(each.ended_at is None for each in case.snapshot.launched):
        return None
    for reader in (*case.snapshot.launchers, *case.snapshot.others):
        for pipe in _read_by(case, reader):
            holders = _holders(case, pipe, reader)
            if holders:
                return _held_open(case, reader, pipe, holders)
    return None


def _held_open(case: Case, reader: ProcessEvidence, pipe: Pipe, holders: list[ProcessEvidence]) -> Finding:
    first = holders[0]
    works = any(computed(each.facts) or _writes(each) for each in holders)
    ended = [view.evidence.ended_at for view in case if view.evidence.ended_at is not None]
    settled = not ended or case.snapshot.taken_at - max(ended) > END_SEEN_S
    whose = f", left behind by rank {first.rank}," if first.rank is not None else ""
    where = place_of(reader)
    return Finding(
        "exit-orphan-holds-pipe",
        Certainty.PROVEN,
        f"Training is over, but pid {reader.facts.pid} ({_name(reader)}) waits for the end of the ranks' output"
        f"{words.at(where)}: pid {first.facts.pid} ({_name(first)}){whose} still holds it open.",
        fix=f"kill {' '.join(str(each.facts.pid) for each in holders[:8])}; start such processes with their output"
        " redirected (stdout=subprocess.DEVNULL), or end them before the rank ends",
        culprits=tuple(Culprit(each.rank, each.facts.pid, host_of(case), "other", place_of(each)) for each in holders),
        victims=(),
        evidence=(
            f"pid {reader.facts.pid} reads {pipe.path}, and every rank that wrote to it has ended",
            *(
                f"pid {each.facts.pid} ({words.command(each.facts.command)}) has {pipe.path} open for writing"
                for each in holders
            ),
        ),
        status=Status.LINGERING if settled and not works else Status.WAITING,
    )


def _writes(each: ProcessEvidence) -> bool:
    return (each.facts.io_delta_bytes or 0) > CHILD_QUIET_IO


def _read_by(case: Case, reader: ProcessEvidence) -> list[Pipe]:
    """The pipes that a process waits for: one that its main thread is blocked on, or any while that only waits."""
    own = [pipe for pipe in _pipes(case) if reader.facts.pid in pipe.readers]
    blocked = reader.facts.blocked_on
    if blocked is not None and reader.facts.system_call in _READS:
        return [pipe for pipe in own if pipe.path == blocked.path]
    stack = main_thread_of(reader.stacks)
    return own if stack is not None and activity(stack).doing in _WAITS else []


def _pipes(case: Case) -> Iterable[Pipe]:
    return (pipe for node in case.snapshot.nodes for pipe in node.pipes)


def _holders(case: Case, pipe: Pipe, reader: ProcessEvidence) -> list[ProcessEvidence]:
    """The processes that keep the pipe open: no launcher, for launchers end with their job."""
    launchers = {each.facts.pid for each in case.snapshot.launchers} | {reader.facts.pid}
    known = {each.facts.pid: each for each in case.snapshot.others}
    return [known[pid] for pid in pipe.writers if pid not in launchers and pid in known]


def _name(process: ProcessEvidence) -> str:
    return words.command(process.facts.command, 60) or process.role
