"""A child that was forked while a thread of its rank held a lock, or while the rank had a pool of threads."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import WAIT_CALLS, Child, thread_of_parent, waits_for_children
from hangwatch.facts.processes.kept_waiting import kept_waiting, others_awaited, stage_of_wait
from hangwatch.facts.processes.locks import takes_a_lock
from hangwatch.model import Certainty, Culprit, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding


def fork_deadlock(case: Case) -> Finding | None:
    """A rank waits for children made by fork, and these wait for what was left in the parent."""
    found = [(view, children) for view in case if (children := inherited(view))]
    awaited = case.awaited()
    ranks = [view.rank for view, _ in found if not case.blocked or view.rank in awaited]
    if not ranks or others_awaited(case, ranks):
        return None
    stuck = [(view, child) for view, children in found if view.rank in ranks for child in children]
    certain = all(child.alone and not _is_notified(child) for _, child in stuck)
    proven = certain and all(_waits_for_ever(view) for view, _ in stuck)
    view, child = stuck[0]
    others = kept_waiting(case, ranks)
    tail = (
        f", and {case.wait_words(others)} for {words.ranks(ranks)}{words.at(case.usual_place(others))}"
        if others
        else ""
    )
    one = len(stuck) == 1
    what = "a lock" if all(takes_a_lock(case, each.where) for _, each in stuck) else "a lock or a thread pool"
    return Finding(
        "fork-deadlock",
        Certainty.PROVEN if certain else Certainty.LIKELY,
        f"{words.plural(len(stuck), 'child process') if not one else 'A child process'} of {case.name(ranks)}, made by"
        f" fork, {words.verb(len(stuck), 'waits', 'wait')} in {child.place} for {what} that"
        f" {words.verb(len(stuck), 'it', 'they')} inherited, and no thread is left to let it go;"
        f" {case.wait_words(ranks)} for {words.verb(len(stuck), 'it', 'them')}{words.at(view.where)}{tail}.",
        culprits=tuple(
            Culprit(owner.rank, each.pid, owner.evidence.host, process="other", where=each.where or owner.where)
            for owner, each in stuck
        ),
        victims=tuple(sorted({*others, *ranks})),
        step=view.step,
        evidence=tuple(sentence for pair in stuck[: words.SHOWN] for sentence in _evidence(case, *pair))
        + tuple(sentence for owner, children in found[:1] for sentence in _left_behind(owner, children[0])),
        status=Status.HUNG if proven or case.stalled(ranks) else Status.WAITING,
        stage=stage_of_wait(case, ranks),
        dead="every thread of these children waits, without a timeout, for another of its own process"
        if proven
        else "",
        held=tuple(ranks) if proven else (),
        awaited=tuple(ranks),
    )


def inherited(view: RankView) -> list[Child]:
    """The forked children in a lock of their own process, while none of the rank's children works."""
    if view.dead or view.stopped or view.over or not waits_for_children(view):
        return []
    children = [Child(each) for each in view.evidence.children if each.role == "child"]
    shown = [child for child in children if child.stack is not None or child.facts.deadlocked]
    busy = [child for child in shown if not child.dead and not child.idle]
    forked = [child for child in busy if child.forked_from(view.evidence.process)]
    if any(child.works for child in children):
        return []
    return [child for child in forked if child.waits_for_lock]


def _is_notified(child: Child) -> bool:
    """It waits for a notification rather than for a lock: of a condition, an event, a queue."""
    frame = child.now.frame
    return frame is not None and frame.file.endswith("/threading.py")


def _waits_for_ever(view: RankView) -> bool:
    """The rank itself waits without a timeout."""
    process = view.evidence.process
    if process is None or not view.steady:
        return False
    reads = process.blocked_on is not None and process.blocked_on.is_pipe
    reads = reads and process.system_call == "read"
    return process.private_wait or process.system_call in WAIT_CALLS or reads


def _evidence(case: Case, view: RankView, child: Child) -> list[str]:
    text = case.text_of(child.where)
    found = [
        f"pid {child.pid}, a child process of rank {view.rank}, stands in {child.place}{f': `{text}`' if text else ''}"
    ]
    if child.facts.cpu_delta_s is not None:
        found.append(f"it used {child.facts.cpu_delta_s:.2f} s of processor time between two samples")
    found.append(child.no_owner if child.alone else "it waits for a lock of its own process")
    return found


def _left_behind(view: RankView, child: Child) -> list[str]:
    """What the parent has and a fork does not copy."""
    process, thread = view.evidence.process, thread_of_parent(view)
    found = ["the child has the command line of its parent: it was forked, and has started no other program"]
    if process is not None and process.threads and child.facts.threads and process.threads > child.facts.threads:
        found.append(f"rank {view.rank} has {process.threads} threads; a fork copies only the one that calls it")
    if thread is not None:
        found.append(f"rank {view.rank} has thread {thread.name!r}, which the child has not")
    return found
