"""A child process that a rank waits for at its exit."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.leaving import leaving, lingering_status
from hangwatch.model import Certainty, Culprit, Frame, ProcessEvidence
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import name_of, user_frame


def child_process(case: Case) -> Finding | None:
    """multiprocessing waits at the exit for a child that still lives."""
    held = [(view, child) for view in leaving(case, Doing.JOIN_CHILD) if (child := _awaited_child(view)) is not None]
    if not held or any(name_of(view.main.frame.function) == "_finalize_join" for view, _ in held if view.main.frame):
        return None
    ranks = [view.rank for view, _ in held]
    view, child = held[0]
    where = _place_of(child)
    return Finding(
        "exit-child-process",
        Certainty.PROVEN,
        f"Training is over, but {case.name(ranks)} cannot exit: child process {child.facts.pid}"
        f" ({words.command(child.facts.command, 60)}) still runs{words.at(where)}.",
        culprits=tuple(
            Culprit(rank.rank, each.facts.pid, rank.evidence.host, process="other", where=_place_of(each))
            for rank, each in held
        ),
        victims=tuple(ranks),
        evidence=(
            f"the main thread of rank {view.rank} waits for pid {child.facts.pid} to end",
            f"pid {child.facts.pid} is in state {child.facts.state}{_used(child)}",
        ),
        status=lingering_status([rank for rank, _ in held]),
        awaited=tuple(ranks),
    )


def _awaited_child(view: RankView) -> ProcessEvidence | None:
    """The child that the system says is waited for; else the only one that lives."""
    living = [each for each in (*view.evidence.children, *view.evidence.workers) if each.facts.state not in ("X", "Z")]
    pid = view.evidence.process.waits_for if view.evidence.process is not None else None
    named = [each for each in living if each.facts.pid == pid]
    others = [each for each in living if each.role != "helper"]
    return named[0] if named else others[0] if len(others) == 1 else None


def _place_of(child: ProcessEvidence) -> Frame | None:
    stack = next((stack for stack in child.stacks if stack.main), None)
    return user_frame(stack.frames) if stack is not None else None


def _used(child: ProcessEvidence) -> str:
    return "" if child.facts.cpu_delta_s is None else f" and used {child.facts.cpu_delta_s:.2f} s of processor time"
