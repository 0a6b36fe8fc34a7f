"""A child process that a rank waits for at its exit."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import HELPER
from hangwatch.facts.processes.leaving import leaving, waits_for_a_command
from hangwatch.facts.start.launchers import place_of
from hangwatch.model import Culprit, ProcessEvidence
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.lingering import cannot_exit
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import name_of


def child_process(case: Case) -> Finding | None:
    """multiprocessing waits at the exit for a child that still lives."""
    held = [(view, child) for view in leaving(case, Doing.JOIN_CHILD) if (child := _awaited_child(view)) is not None]
    if not held or any(name_of(view.main.frame.function) == "_finalize_join" for view, _ in held if view.main.frame):
        return None
    waiting = [view for view, _ in held]
    view, child = held[0]
    command = waits_for_a_command(view)  # which may come to its end
    return cannot_exit(
        case,
        "exit-child-process",
        waiting,
        f"child process {child.facts.pid} ({words.command(child.facts.command, 60)}) still runs"
        f"{words.at(place_of(child))}",
        sure=not command,
        fix="give that command a timeout, subprocess.run(..., timeout=60), or do not wait for it" if command else "",
        culprits=tuple(
            Culprit(rank.rank, each.facts.pid, rank.evidence.host, process="other", where=place_of(each))
            for rank, each in held
        ),
        victims=tuple(view.rank for view in waiting),
        evidence=(
            f"the main thread of rank {view.rank} waits for pid {child.facts.pid} to end",
            f"pid {child.facts.pid} is in state {child.facts.state}{_used(child)}",
        ),
    )


def _awaited_child(view: RankView) -> ProcessEvidence | None:
    """The child that the system says is waited for; else the only one that lives."""
    living = [each for each in (*view.evidence.children, *view.evidence.workers) if each.facts.state not in ("X", "Z")]
    pid = view.evidence.process.waits_for if view.evidence.process is not None else None
    named = [each for each in living if each.facts.pid == pid]
    others = [each for each in living if each.role != HELPER]
    return named[0] if named else others[0] if len(others) == 1 else None


def _used(child: ProcessEvidence) -> str:
    return "" if child.facts.cpu_delta_s is None else f" and used {child.facts.cpu_delta_s:.2f} s of processor time"
