"""A rank that makes the calls of its step once more: it has left the rest of its turn out, and begun the next one."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only, turn_cut_short
from hangwatch.facts.case import Case
from hangwatch.facts.differences.again import due_instead, loop_in_its_step, made_again
from hangwatch.facts.witness import Kind, Witness
from hangwatch.rules.finding import Finding


def began_its_turn_anew(case: Case) -> Finding | None:
    """By its habit another call was due, and the source shows where a turn goes on without that.

    Where a loop within the step is around the call, it may have made another turn of that instead.
    """
    found = made_again(case) if case.in_trouble else ()
    due = due_instead(case, found[0]) if len(found) == 1 else None
    if due is None or loop_in_its_step(case.ranks[found[0].rank]) is not None:
        return None
    again, ways = found[0], turn_cut_short(case, due.lines, of_inner_loop=True)
    if not ways:
        return None
    call = sites_of(case).named(again.rank, due)
    witnesses = [Witness(Kind.HABIT, again.counted), *(Witness(Kind.SOURCE, each) for each in evidence_of(ways))]
    where = words.at(case.ranks[again.rank].where)
    return Finding(
        "skipped-collective",
        case.weigh(witnesses),
        f"Rank {again.rank} skipped {call} in {words.step(again.step)}{skip_path(ways)}, and is in {again.call}{where}"
        " of its next turn already.",
        culprits=case.culprits((again.rank,), the_only(ways)),
        victims=case.victims((again.rank,)),
        step=again.step,
        witnesses=tuple(witnesses),
        status=case.failed_status,
    )
