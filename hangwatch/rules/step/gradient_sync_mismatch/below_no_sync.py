"""Ranks that kept the gradients of a step in which others reduced theirs, as DDP itself was told."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.differences.backwards import BackwardsApart, parted_from_together
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.gradient_sync_mismatch.places import ALIKE, backward_place


def accumulated_alone(case: Case) -> Finding | None:
    """In the first step that differs some ranks accumulated gradients (`no_sync()`), and the others synchronised.

    Ranks may accumulate otherwise from the beginning, and their gradients fit each other: before that step all ranks
    had synchronised in the same ones. And no rank computes now: all wait or have ended. The fewer left the common way,
    and of two halves those that left the rhythm of all.
    """
    found = parted_from_together(case)
    if found is None or not found.accumulating or not found.synchronising or found.without:
        return None
    kept, reduced = found.accumulating, found.synchronising
    by_rhythm = {True: kept, False: reduced, None: ()}[found.due]
    fewer, more = sorted((kept, reduced), key=len)
    odd = fewer if len(fewer) < len(more) else by_rhythm
    witnesses = [
        Witness(Kind.FACT, f"DDP itself was told so: its forward ran below no_sync() on {case.name(kept)} alone"),
        Witness(Kind.HABIT, _habit(found), agrees=by_rhythm in ((), odd)),
    ]
    if len(fewer) < len(more):
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks agree in that step: {case.name(more)}"))
    certainty = case.weigh(witnesses)
    if len(fewer) == len(more) and certainty is Certainty.PROVEN:
        certainty = Certainty.LIKELY  # of two halves only the rhythm until then says which one left it
    place = backward_place(case)
    return Finding(
        "gradient-sync-mismatch",
        certainty,
        f"{case.name(kept, capital=True)} accumulated gradients in {words.step(found.step)}, where {case.name(reduced)}"
        f" synchronised theirs{words.at(place)}; since then the ranks' gradients are mispaired.",
        fix=ALIKE,
        culprits=case.culprits(odd, place),
        victims=case.victims(odd),
        step=found.step,
        witnesses=tuple(witnesses),
        status=case.failed_status,
        awaited=tuple(case.ranks),
    )


def _habit(found: BackwardsApart) -> str:
    if found.due is None:
        times = words.plural(len(found.together), "recorded step")
        return f"in {times} before it all ranks synchronised together, and in no step some alone"
    due = "were to in this one" if found.due else "were not to yet in this one"
    return f"all ranks had synchronised together once in {words.plural(found.interval or 0, 'step')}, and {due}"
