"""Sends and receives that do not match: one that a rank left out, or a circle of waits with one in it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case, what
from hangwatch.facts.peer_calls import LeftOut, left_out_to_a_peer
from hangwatch.model import Certainty, StepName
from hangwatch.rules.circular import circular
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def point_to_point_deadlock(case: Case) -> Finding | None:
    """A peer waits for a call that a rank left out, or ranks wait for each other in a circle."""
    left_out = left_out_to_a_peer(case)
    return _left_out(case, left_out) if left_out is not None else _in_a_circle(case)


def _left_out(case: Case, found: LeftOut) -> Finding:
    step, waiting = StepName(found.step.epoch, found.step.batch, found.step.step), found.waiting
    call, place = found.usual.op, user_frame(found.usual.frames)
    toward = "from" if "recv" in call else "to"
    made = "one" if found.usually == 1 else f"{found.usually}"
    now = words.plural(found.made, f"such {call}")
    before = f"the {words.plural(found.steps, 'step')} before"
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,  # that the calls do not match is certain; which of the two ends is right is not
        f"Rank {found.rank} left out a {call} {toward} rank {waiting.rank}{words.at(place)} in {words.step(step)}, as"
        f" it never did before; rank {waiting.rank} waits for it in {what(waiting)}{words.at(waiting.where)}.",
        culprits=(case.ranks[found.rank].culprit(place),),
        step=step,
        evidence=(f"in {words.step(step)} rank {found.rank} made {now}; it made {made} in each of {before}",),
        waits=(case.wait(waiting.rank, (found.rank,)),),
        awaited=(found.rank,),
    )


def _in_a_circle(case: Case) -> Finding | None:
    circle = case.graph.cycle(case.deadlocked)
    entries = [case.blocked[rank] for rank in circle]
    if not any(entry.to_a_peer for entry in entries):
        return None
    return circular(case, "point-to-point-deadlock", entries)
