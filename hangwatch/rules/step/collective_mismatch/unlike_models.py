"""Models that differ between the ranks: DDP() compares them before the first step, and its error says what differs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hangwatch import words
from hangwatch.facts.calls.last_calls import last_call
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, ExceptionFacts, Frame, Status
from hangwatch.ranks.sides import by_value
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame

_COUNTS = re.compile(r"Rank (\d+) has (\d+) params, while rank (\d+) has inconsistent (\d+) params")
_SHAPE = re.compile(r"(params\[\d+\]) in this process with (sizes|strides) (\[[\d, ]*\]) appears not to match")
_FIX = (
    "build the same model on every rank: what its layers and sizes follow from (a vocabulary, a number of classes, an"
    " option) must be the same there; find it on rank 0 and send it with dist.broadcast_object_list"
)


def unlike_models(case: Case) -> Finding | None:
    """What DDP's check says. Of mispaired calls it would compare other things, and one rank alone say so."""
    errors = {view.rank: view.exception for view in case if view.exception is not None and view.exception.fatal}
    found = _by_count(errors) or _by_shape(case, errors)
    if found is None:
        return None
    said, odd, where = found
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"The ranks have built different models: {said}{words.at(where)}.",
        fix=_FIX,
        culprits=case.culprits(odd, where),
        victims=tuple(rank for rank in case.ranks if rank not in odd),
        step=case.furthest_step(case.ranks),
        evidence=tuple(
            f"rank {rank} recorded {words.error(error)}"
            for rank, error in errors.items()
            if _COUNTS.search(error.message) or _SHAPE.search(error.message)
        ),
        status=Status.FAILED,
    )


def _by_count(errors: Mapping[int, ExceptionFacts]) -> tuple[str, tuple[int, ...], Frame | None] | None:
    """All ranks have gathered the numbers of parameters, and each one tells its own and one that differs."""
    told = {rank: match for rank, error in errors.items() if (match := _COUNTS.search(error.message)) is not None}
    counts = {rank: int(match[2]) for rank, match in told.items() if int(match[1]) == rank}
    others = {(int(match[3]), int(match[4])) for match in told.values()}
    if len(counts) < 2 or any(counts.get(rank, count) != count for rank, count in others):
        return None
    sides = by_value(counts | dict(others))
    said = words.listed(
        [f"{words.plural(count, 'parameter')} on {words.ranks(ranks)}" for count, ranks in sides.items()]
    )
    fewest = min(sides.values(), key=len)
    odd = tuple(fewest) if 2 * len(fewest) < len(counts) else ()
    return said, odd, user_frame(errors[min(counts)].frames)


def _by_shape(case: Case, errors: Mapping[int, ExceptionFacts]) -> tuple[str, tuple[int, ...], Frame | None] | None:
    """Rank 0 has sent the shapes of its own, and each rank that has others says so."""
    told = {rank: match for rank, error in errors.items() if (match := _SHAPE.search(error.message)) is not None}
    if not told:
        return None
    first = min(told)
    where = user_frame(errors[first].frames)
    lasts = {view.rank: last_call(case, view) for view in case if view.rank not in told}
    if where is None or not any(last is not None and last.where == where for last in lasts.values()):
        return None  # no other rank builds its model there: what came was meant for another call
    name, what, sizes = told[first].groups()
    said = f"{name} has {what} {sizes} on {words.ranks([first])}, and others on rank 0"
    return said, tuple(told) if len(told) < len(lasts) else (), where
