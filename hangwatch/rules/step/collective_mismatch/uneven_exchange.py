"""An all_to_all that ended a rank, in which the ranks for the first time did not bring equally much."""

from __future__ import annotations

from collections.abc import Mapping

from hangwatch import words
from hangwatch.facts.calls.call_sites import HABIT
from hangwatch.facts.calls.last_calls import brought_down, end_sentences, endings_of, last_call
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, Collective, Status
from hangwatch.ranks.ledger import CALLS_TOLD, family
from hangwatch.ranks.sides import by_value
from hangwatch.ranks.tensors import elements
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def aborted_in_an_exchange(case: Case) -> Finding | None:
    """Without split sizes all must bring as many elements. Such sizes are not recorded, the earlier calls are.

    Which side brought the wrong number is not known: where data decides it, every rank brings its own.
    """
    call = _ended_in(case) if brought_down(case) else None
    counts = _brought(case, call, call.seq) if call is not None else {}
    if call is None or len(set(counts.values())) < 2 or not _equal_before(case, call):
        return None
    where = user_frame(call.frames)
    said = words.listed(
        f"{case.name(ranks)} {words.plural(count, 'element')}" for count, ranks in sorted(by_value(counts).items())[:4]
    )
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"The ranks brought different numbers of elements to {call.op}{words.at(where)}: {said}; in all earlier calls"
        " that are recorded they brought equally many.",
        fix="pad to the size of the rank that has most (all_reduce it with MAX), or pass input_split_sizes and"
        " output_split_sizes",
        victims=tuple(case.ranks),
        step=case.furthest_step(list(case.ranks)),
        evidence=end_sentences(case),
        status=Status.FAILED,
    )


def _ended_in(case: Case) -> Collective | None:
    """The all_to_all in which the backend ended a rank."""
    aborted = (case.ranks[rank] for rank, end in endings_of(case).items() if end.by_backend)
    calls = (last.call for view in aborted if (last := last_call(case, view)) is not None)
    return next((call for call in calls if call is not None and family(call.op) == "all_to_all"), None)


def _brought(case: Case, call: Collective, seq: int) -> Mapping[int, int]:
    """How much each rank brought to the call of that number; empty where that is not known of all."""
    made = case.ledger.under(call.group, seq, list(case.ranks))
    brought = {rank: elements(each.sizes) for rank, each in made.items() if family(each.op) == "all_to_all"}
    known = {rank: count for rank, count in brought.items() if count is not None}
    return known if len(known) == len(made) == len(case.ranks) else {}


def _equal_before(case: Case, call: Collective) -> bool:
    """All brought as many in each exchange before it, and in enough of them."""
    numbers = range(call.seq - 1, max(call.seq - CALLS_TOLD, 0), -1)
    before = [counts for seq in numbers if (counts := _brought(case, call, seq))]
    return len(before) >= HABIT and all(len(set(counts.values())) == 1 for counts in before)
