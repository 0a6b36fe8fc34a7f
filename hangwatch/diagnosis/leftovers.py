"""What outlives the ranks: launchers that wait for the wrong thing, orphans that hold their output open."""

from __future__ import annotations

from collections.abc import Iterable

from ..activity import Doing
from ..frames import user_frame
from ..records import Certainty, Culprit, Frame, Pipe, ProcessEvidence, Status
from ..stacks import activity
from . import words
from .arrivals import main_stack
from .case import IDLE_CPU_S, Case, RankView
from .feeding import QUIET_IO
from .finding import Finding
from .processes import end_of

_WAITS = (Doing.LOCK, Doing.JOIN_THREADS, Doing.JOIN_CHILD, Doing.SOCKET)
_READS = ("read", "readv", "poll", "ppoll", "select", "pselect6", "splice")
SETTLED_S = 5.0  # a reader needs a moment to see the end of a pipe


def orphan_holds_pipe(case: Case) -> Finding | None:
    """All ranks have ended, and somebody reads their output to an end that an orphan keeps from it."""
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
    works = any((each.facts.cpu_delta_s or 0) > IDLE_CPU_S or _writes(each) for each in holders)
    ended = [view.evidence.ended_at for view in case if view.evidence.ended_at is not None]
    settled = not ended or case.snapshot.taken_at - max(ended) > SETTLED_S
    whose = f", left behind by rank {first.rank}," if first.rank is not None else ""
    where = _place(reader)
    return Finding(
        "exit-orphan-holds-pipe",
        Certainty.PROVEN,
        f"Training is over, but pid {reader.facts.pid} ({_name(reader)}) waits for the end of the ranks' output"
        f"{words.at(where)}: pid {first.facts.pid} ({_name(first)}){whose} still holds it open.",
        fix=f"kill {' '.join(str(each.facts.pid) for each in holders[:8])}; start such processes with their output"
        " redirected (stdout=subprocess.DEVNULL), or end them before the rank ends",
        culprits=tuple(Culprit(each.rank, each.facts.pid, _host(case), "other", _place(each)) for each in holders),
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
    return (each.facts.io_delta_bytes or 0) > QUIET_IO


def _read_by(case: Case, reader: ProcessEvidence) -> list[Pipe]:
    """The pipes that a process waits for: one that its main thread is blocked on, or any while that only waits."""
    own = [pipe for pipe in _pipes(case) if reader.facts.pid in pipe.readers]
    blocked = reader.facts.blocked_on
    if blocked is not None and reader.facts.system_call in _READS:
        return [pipe for pipe in own if pipe.path == blocked.path]
    stack = main_stack(reader.stacks)
    return own if stack is not None and activity(stack).doing in _WAITS else []


def _pipes(case: Case) -> Iterable[Pipe]:
    return (pipe for node in case.snapshot.nodes for pipe in node.pipes)


def _holders(case: Case, pipe: Pipe, reader: ProcessEvidence) -> list[ProcessEvidence]:
    """Who keeps the pipe open: no launcher, for launchers end with their job."""
    launchers = {each.facts.pid for each in case.snapshot.launchers} | {reader.facts.pid}
    known = {each.facts.pid: each for each in case.snapshot.others}
    return [known[pid] for pid in pipe.writers if pid not in launchers and pid in known]


def _name(process: ProcessEvidence) -> str:
    return words.command(process.facts.command, 60) or process.role


def _place(process: ProcessEvidence) -> Frame | None:
    stack = main_stack(process.stacks)
    return user_frame(stack.frames) if stack is not None else None


def _host(case: Case) -> str:
    return case.snapshot.nodes[0].host if len(case.snapshot.nodes) == 1 else ""


def launcher_order(case: Case) -> Finding | None:
    """A launcher waits for one rank, while another one has failed already and nobody has noticed."""
    if case.blocked:
        return None  # who waits for the dead in a collective is the better story
    for launcher in case.snapshot.launchers:
        awaited = next((view for view in case if not view.dead and view.pid == launcher.facts.waits_for), None)
        failed = [view for view in case if view.state == "Z" and not view.finished and _is_child(launcher, view)]
        if awaited is not None and failed:
            return _wrong_order(case, launcher, awaited, failed)
    return None


def _is_child(launcher: ProcessEvidence, view: RankView) -> bool:
    process = view.evidence.process
    return view.pid in launcher.facts.children or (process is not None and process.parent == launcher.facts.pid)


def _wrong_order(case: Case, launcher: ProcessEvidence, awaited: RankView, failed: list[RankView]) -> Finding:
    ranks = [view.rank for view in failed]
    where = _place(launcher)
    how = end_of(failed[0].evidence.process)
    return Finding(
        "exit-launcher-order",
        Certainty.PROVEN,
        f"The launcher (pid {launcher.facts.pid}) waits for rank {awaited.rank} (pid {awaited.pid}){words.at(where)},"
        f" while {case.name(ranks)} has ended already ({how}) and nobody has noticed.",
        culprits=tuple(view.culprit(_raised_at(view)) for view in failed),
        victims=(awaited.rank,),
        step=failed[0].step,
        evidence=(
            f"pid {launcher.facts.pid} is in {launcher.facts.system_call} for pid {awaited.pid}",
            *(f"rank {view.rank} (pid {view.pid}) is a zombie: {end_of(view.evidence.process)}" for view in failed[:8]),
            f"rank {awaited.rank} stands at {words.place(awaited.where) or awaited.main.doing}",
        ),
        status=_of_order(case, awaited, failed),
        awaited=(awaited.rank,),
    )


def _of_order(case: Case, awaited: RankView, failed: list[RankView]) -> Status | None:
    """After the training it lingers, once nobody has noticed for a while."""
    if awaited.works:
        return Status.WAITING
    ended = [view.evidence.ended_at for view in failed if view.evidence.ended_at is not None]
    settled = bool(ended) and case.snapshot.taken_at - max(ended) > SETTLED_S
    if awaited.over:
        return Status.LINGERING if settled or awaited.evidence.stalled else Status.WAITING
    return Status.HUNG if settled else None


def _raised_at(view: RankView) -> Frame | None:
    exception = view.exception
    return user_frame(exception.frames) if exception is not None else None
