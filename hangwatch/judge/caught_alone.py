"""Errors that the culprits alone have caught, at any time before: what they do otherwise may follow from one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.differences.caught_errors import all_caught
from hangwatch.model import ExceptionFacts, Frame
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame

_ERRORS_TOLD = 2  # at most
_Kind = tuple[str, Frame]  # the type, and the user's line


def caught_by_culprits_alone(case: Case, finding: Finding) -> tuple[str, ...]:
    """Sentences on the first errors that each culprit has caught and no other rank; none that `finding` tells of."""
    culprits = sorted(case.ranks.keys() & finding.blamed)
    others = [rank for rank in case.ranks if rank not in culprits]
    if not culprits or not others:
        return ()
    first, *rest = (dict(_caught(case, rank)) for rank in culprits)
    theirs = {kind for rank in others for kind, _ in _caught(case, rank)}
    told = (finding.summary, *finding.evidence, *finding.details)
    alone = [
        _said(case, culprits, error, kind[1])
        for kind, error in first.items()
        if kind not in theirs and all(kind in errors for errors in rest)
        if not any(words.place(kind[1]) in each or error.type in each for each in told)
    ]
    return tuple(alone[:_ERRORS_TOLD])


def _caught(case: Case, rank: int) -> Iterator[tuple[_Kind, ExceptionFacts]]:
    for error in all_caught(case.ranks[rank]):
        where = user_frame(error.frames)
        if where is not None:
            yield (error.type, where), error


def _said(case: Case, culprits: Sequence[int], error: ExceptionFacts, where: Frame) -> str:
    when = "before the first step" if error.step is None else f"in step {error.step}"
    return f"{case.name(culprits)} alone caught {words.error(error)}{words.at(where)} {when}"
