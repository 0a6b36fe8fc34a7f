"""An all_to_all that ended a rank: the ranks did not bring equally much, or their split sizes disagree."""

from __future__ import annotations

from collections.abc import Mapping

from hangwatch import words
from hangwatch.facts.calls.call_sites import HABIT
from hangwatch.facts.calls.last_calls import brought_down, end_sentences, endings_of, last_call
from hangwatch.facts.case import Case
from hangwatch.facts.differences.parting import parting
from hangwatch.model import Certainty, Collective, Status
from hangwatch.ranks.last_words import Kind, LastWord
from hangwatch.ranks.ledger import CALLS_TOLD, family
from hangwatch.ranks.sides import by_value
from hangwatch.ranks.tensors import elements, width
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


def aborted_by_its_splits(case: Case) -> Finding | None:
    """gloo's word of a message's size, in an all_to_all that all ranks made at one place: their split sizes disagree.

    Which of them is wrong is not known: each rank gives its own. What another rank met behind the call, with data that
    were cut elsewhere, follows from it.
    """
    call, word = _ended_in(case), _of_its_size(case)
    made = case.ledger.under(call.group, call.seq, list(case.ranks)) if call is not None else {}
    if call is None or word is None or len(made) < len(case.ranks) or parting(case) is not None:
        return None
    if len({(each.op, user_frame(each.frames)) for each in made.values()}) > 1:
        return None
    at, itemsize = words.at(user_frame(call.frames)), width(call.dtypes[0]) if call.dtypes else None
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"The ranks' split sizes of {call.op}{at} do not match: {_came(word, itemsize)}.",
        fix="what a rank sends to another one must be what that one expects of it: exchange the counts first (an"
        " all_to_all_single of input_split_sizes gives output_split_sizes)",
        victims=tuple(case.ranks),
        step=case.furthest_step(list(case.ranks)),
        evidence=(f"all ranks made {call.op} {call.seq} of group {call.group} there", *end_sentences(case)),
        status=Status.FAILED,
    )


def _of_its_size(case: Case) -> LastWord | None:
    """What gloo says of the message of another size for which it ended a rank."""
    ends = (end.word for end in endings_of(case).values() if end.by_backend)
    return next((word for word in ends if word is not None and word.kind is Kind.SIZE_MISMATCH), None)


def _came(word: LastWord, itemsize: int | None) -> str:
    """`a message of 30 elements came where 29 were expected`, in bytes where these are of no known size."""
    if word.received is None or word.expected is None:
        return "a message of another size came than its call expected"
    parts = (word.received, word.expected)
    if itemsize is None or any(part % itemsize for part in parts):
        return f"a message of {parts[0]:,} bytes came where {parts[1]:,} were expected"
    received, expected = (part // itemsize for part in parts)
    were = words.verb(expected, "was", "were")
    return f"a message of {words.plural(received, 'element')} came where {expected:,} {were} expected"


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
