"""All ranks stand in one call, with the same calls behind them, and bring tensors of different sizes to it.

For calls of which no record tells the sizes, such as those that DTensor makes: that gloo aborted one rank does.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch import words
from hangwatch.facts.calls.last_calls import Last, brought_down, end_sentences, endings_of, last_call
from hangwatch.facts.case import Case
from hangwatch.facts.differences.parting import parting
from hangwatch.model import Certainty, Status
from hangwatch.ranks.last_words import Kind, LastWord
from hangwatch.rules.finding import Finding

_BACKWARD = "_engine_run_backward"
_FIX = (
    "give all ranks of the group tensors of one size there: ranks that hold parts of one model need the same batch, so"
    " shard the data by the data-parallel rank alone; else pad to the largest size"
)


def unlike_sizes_at_one_place(case: Case) -> Finding | None:
    """Which size is wrong nobody knows. A backward makes several calls at one line: those are not told apart."""
    sizes = [found for end in endings_of(case).values() if (found := _sizes(end.word)) is not None]
    if len(sizes) != 1 or case.absent or not brought_down(case) or parting(case) is not None:
        return None
    lasts = [last for view in case if (last := last_call(case, view)) is not None]
    if len(lasts) < len(case.ranks) or len({view.step.step for view in case}) > 1 or not _are_one_call(lasts):
        return None
    where, (received, expected) = lasts[0].where, sizes[0]
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"The ranks bring tensors of different sizes to one collective{words.at(where)}: a message of {received:,}"
        f" bytes came where {expected:,} were expected.",
        fix=_FIX,
        victims=tuple(case.ranks),
        step=case.furthest_step(case.ranks),
        evidence=(
            f"all ranks stood at {words.place(where)} in the same step, and no earlier step shows a difference",
            *end_sentences(case),
        ),
        status=Status.FAILED,
    )


def _sizes(word: LastWord | None) -> tuple[int, int] | None:
    if word is None or word.kind is not Kind.SIZE_MISMATCH or word.received is None or word.expected is None:
        return None
    return word.received, word.expected


def _are_one_call(lasts: Sequence[Last]) -> bool:
    in_backward = any(frame.function == _BACKWARD for last in lasts for frame in last.frames)
    return not in_backward and len({(last.name, last.site.lines) for last in lasts}) == 1
