"""A C call that holds the interpreter lock."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing

COMPUTES = 2.0  # times its patience that a call which uses the processor may take
MISSED_S = 3.0  # seconds: fifteen ticks in a row were missed while the main thread was seen to own the lock


def gil_held(case: Case) -> Finding | None:
    """A rank's main thread is in a C call that owns the interpreter lock, so that not even its ticker runs."""
    # An interpreter that is being taken down runs no other threads either.
    holders = [view for view in case if not (view.dead or view.stopped or view.over) and holds_lock(view)]
    holders = [view for view in holders if not case.blocked or view.rank in case.awaited()]
    if not holders:
        return None
    view = holders[0]
    culprits = [other.rank for other in holders]
    victims = case.victims(culprits)
    native = next((frame for frame in view.evidence.main_stack if frame.native), None)
    inside = f" in {native.function}" if native is not None else ""
    tail = f"; {case.wait_words(victims)} for it" if victims else ""
    return Finding(
        "gil-held",
        Certainty.LIKELY,
        f"{case.say(culprits, 'is', 'are', capital=True)} in a C call that holds the"
        f" interpreter lock{inside}{words.at(view.where)}{tail}.",
        culprits=case.culprits(culprits),
        victims=victims,
        step=view.step,
        evidence=(
            f"no thread of rank {view.rank} has run for {words.duration(view.silent_s or 0.0)}",
            "its main thread owns the interpreter lock",
        ),
        status=Status.HUNG if case.stalled(culprits) and not any(map(_may_end, holders)) else Status.WAITING,
    )


def _may_end(view: RankView) -> bool:
    """It computes, as one call over a large collection does: a regular expression may do so for ever."""
    return view.busy and view.evidence.still_s < COMPUTES * view.evidence.patience_s


def holds_lock(view: RankView) -> bool:
    """The main thread owns the interpreter lock at one place, and the ticker has not run for a while.

    Where the rank is ready to run and gets little processor time, its ticker gets none for that. torch's own code may
    hold it while it writes a checkpoint: then the file is what it waits for.
    """
    process = view.in_kernel
    saves = view.now.doing is Doing.CHECKPOINT and process is not None and process.blocked_on is not None
    if saves or (view.starved and not view.busy):
        return False
    samples = (*view.evidence.stacks, *view.evidence.earlier_stacks)
    owner = any(stack.main and stack.owns_gil for stack in samples)
    return owner and view.steady and (view.silent_s or 0.0) > MISSED_S
